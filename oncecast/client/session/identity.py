"""The name and ids of a client, which all parts of its session share."""

from __future__ import annotations


class Identity:
    """The name and ids of a client. All processes with one state directory share `directory_id`."""

    __slots__ = ("directory_id", "durable", "incarnation", "producer")

    def __init__(self, producer: str, incarnation: str, durable: bool) -> None:
        self.producer = producer  # the durable name under which the client puts
        self.incarnation = incarnation  # a random id of this process
        self.durable = durable  # whether the outbox is on disk
        self.directory_id = incarnation if durable else ""
