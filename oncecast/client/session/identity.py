"""The names of a client, which all parts of its session share."""

from __future__ import annotations


class Identity:
    """`directory_id` stays the same for all processes that use one state directory."""

    __slots__ = ("directory_id", "durable", "incarnation", "producer")

    def __init__(self, producer: str, incarnation: str, durable: bool) -> None:
        self.producer = producer  # the durable name under which the client puts
        self.incarnation = incarnation  # a random id of this process
        self.durable = durable  # The outbox is on disk.
        self.directory_id = incarnation if durable else ""
