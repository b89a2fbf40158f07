"""Flows: the delivery state of each reader, such as its next offset and credit.

A flow delivers messages to the attached reader of a subscription, without gaps and within the
credit of the client's last Fetch. The flow ends when the reader's epoch does.
"""

from __future__ import annotations

from collections import deque

from oncecast.broker.machine import Machine
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import stale
from oncecast.kernel.protocol import NodeId
from oncecast.wire.errors import (
    Fenced,
    InvalidTopic,
    NoSuchTopic,
    NotHere,
    NotSubscribed,
    OutOfRange,
    Repositioned,
)

LOST_MAX = 10_000  # maximum number of lost readers to remember

Ended = InvalidTopic | NoSuchTopic | NotHere | NotSubscribed | Fenced | Repositioned | OutOfRange


def readable_subscription(
    machine: Machine, topic: str, subscription: str, epoch: int
) -> Subscription | Ended:
    """Return the subscription if a reader with this epoch may read it, else the refusal."""
    known = machine.registry.topics.get(topic)
    if known is None:
        return machine.registry.elsewhere(topic) or machine.registry.missing(topic)
    found = known.subscriptions.get(subscription)
    if found is None:
        return NotSubscribed(topic, subscription)
    if found.epoch != epoch:
        return stale(found, epoch)
    # Detached, so the client must attach again.
    return found if found.incarnation else Fenced(epoch)


class Window:
    """A client's bytes in flight across all its flows, and the flows waiting for window space."""

    __slots__ = ("outstanding", "starved")

    def __init__(self) -> None:
        self.outstanding = 0
        self.starved: dict[Flow, None] = {}


class Flow:
    """Delivery to one reader. `next` is the next offset to send; `_sent` holds chunks in flight."""

    __slots__ = (
        "_base",
        "_bytes",
        "_limit",
        "_outstanding",
        "_sent",
        "client",
        "epoch",
        "next",
        "subscription",
        "topic",
        "window",
    )

    def __init__(
        self, client: NodeId, window: Window, topic: str, subscription: str, epoch: int
    ) -> None:
        self.client, self.window = client, window
        self.topic, self.subscription, self.epoch = topic, subscription, epoch
        self._base = self.next = self._limit = -1
        self._bytes = self._outstanding = 0
        self._sent: deque[tuple[int, int]] = deque()  # end offset and bytes of each chunk

    def renew(self, offset: int, messages: int, size: int) -> None:
        """Set new credit, starting at `offset`. The client has received all messages before it."""
        if self._base < offset <= self.next:
            while self._sent and self._sent[0][0] <= offset:
                self._arrived(self._sent.popleft()[1])
        else:
            self.forget()
            self.next = offset
        self._base, self._limit, self._bytes = offset, offset + messages, size

    def sent(self, end: int, size: int) -> None:
        self.next = end
        self._sent.append((end, size))
        self._arrived(-size)

    def forget(self) -> None:
        """Discard the record of bytes in flight."""
        self._sent.clear()
        self._arrived(self._outstanding)

    def _arrived(self, size: int) -> None:
        self._outstanding -= size
        self.window.outstanding -= size

    def soon_renewed(self, offset: int) -> bool:
        """Return whether half of the credit is used at `offset`, when the client renews it."""
        return 2 * (self._limit - offset) <= self._limit - self._base

    @property
    def messages_left(self) -> int:
        return self._limit - self.next

    @property
    def bytes_left(self) -> int:
        return self._bytes - self._outstanding


class Flows:
    """All flows of a node. A subscription has at most one, because only one epoch is current."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, Flow]] = {}
        self._by_client: dict[NodeId, dict[Flow, None]] = {}
        # The epochs of readers whose connection was lost, by topic and subscription.
        self._lost: dict[tuple[str, str], int] = {}

    def __contains__(self, topic: str) -> bool:
        """Return whether any client is reading the topic."""
        return topic in self._by_topic

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def find(self, topic: str, subscription: str) -> Flow | None:
        return self._by_topic.get(topic, {}).get(subscription)

    def of_topic(self, topic: str) -> list[Flow]:
        return list(self._by_topic.get(topic, {}).values())

    def of_client(self, client: NodeId) -> list[Flow]:
        return list(self._by_client.get(client, {}))

    def add(self, flow: Flow) -> None:
        self._by_topic.setdefault(flow.topic, {})[flow.subscription] = flow
        self._by_client.setdefault(flow.client, {})[flow] = None
        self._lost.pop((flow.topic, flow.subscription), None)

    def note_lost(self, flow: Flow) -> None:
        """Remember that the client of this flow has disconnected."""
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost[flow.topic, flow.subscription] = flow.epoch

    def has_lost(self, topic: str, subscription: str, epoch: int) -> bool:
        """Return whether the connection of this reader was lost."""
        return self._lost.get((topic, subscription)) == epoch

    def drop(self, flow: Flow) -> None:
        flow.forget()
        flow.window.starved.pop(flow, None)
        of_topic, of_client = self._by_topic[flow.topic], self._by_client[flow.client]
        del of_topic[flow.subscription], of_client[flow]
        if not of_topic:
            del self._by_topic[flow.topic]
        if not of_client:
            del self._by_client[flow.client]
