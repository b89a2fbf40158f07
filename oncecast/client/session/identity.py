"""A client's name and ids, shared by all parts of its session."""

from __future__ import annotations


class Identity:
    """A client's name and ids. All processes with the same state directory share `directory_id`."""

    __slots__ = ("directory_id", "durable", "incarnation", "producer")

    def __init__(self, producer: str, incarnation: str, durable: bool) -> None:
        self.producer = producer  # the name under which the client puts messages
        self.incarnation = incarnation  # a random id for this process
        self.durable = durable  # whether the outbox is on disk
        self.directory_id = incarnation if durable else ""
