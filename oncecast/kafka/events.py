"""Requests of the listener to the front end, and events of the front end.

listener → front end    Connected, Received, Disconnected
front end → listener    Reply, Handled, Hangup
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value


class Connected(Value):
    """A Kafka client has connected. `connection` is a number that is never reused."""

    connection: int
    host: str  # the client's address, for DescribeGroups


class Received(Value):
    """A request has arrived, without the length in front of it."""

    connection: int
    request: bytes


class Disconnected(Value):
    connection: int


class Reply(Value):
    """Send a response, with the length in front of it. Responses are in the order of requests."""

    connection: int
    response: bytes


class Handled(Value):
    """A request that has no response (acks=0) is done."""

    connection: int


class Hangup(Value):
    """Close the connection, because the client sent something that cannot be answered."""

    connection: int
    why: str
