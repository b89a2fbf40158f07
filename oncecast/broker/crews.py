"""The connected workers of a node: a crew for each shared subscription."""

from __future__ import annotations

from collections.abc import Iterable

from oncecast.broker.endings import Grant
from oncecast.kernel.protocol import NodeId

Where = tuple[str, str]  # topic and subscription


class Hand:
    """A connected worker. `sent` is the last token that the node has sent to it."""

    __slots__ = ("client", "sent", "sizes", "window", "worker")

    def __init__(self, client: NodeId, worker: str) -> None:
        self.client, self.worker = client, worker
        self.window = self.sent = 0
        self.sizes: dict[int, int] = {}  # number of bytes sent under each token

    @property
    def bytes(self) -> int:
        """Return the bytes that the worker holds, or a few more."""
        return sum(self.sizes.values())

    def keep(self, grants: Iterable[Grant]) -> None:
        """Forget the sizes of messages that are settled, if there may be many."""
        tokens = {grant.token for grant in grants}
        if len(self.sizes) > 2 * len(tokens) or len(self.sizes) > 16:
            self.sizes = {each: size for each, size in self.sizes.items() if each in tokens}


class Crew:
    """The workers of one subscription, and whether a command about it is in flight."""

    __slots__ = ("bury_at", "burying", "gone", "hands", "leasing", "refusals", "unsent")

    def __init__(self) -> None:
        self.hands: dict[str, Hand] = {}
        # Workers without a connection, and when to release their messages.
        self.gone: dict[str, float] = {}
        self.leasing = self.burying = False
        self.refusals = 0  # consecutive refused dead-letter writes
        self.bury_at = 0.0  # when to try the next dead-letter write
        self.unsent: dict[str, None] = {}  # workers whose next messages could not be read yet


class Crews:
    def __init__(self) -> None:
        self._crews: dict[Where, Crew] = {}
        self._of_client: dict[NodeId, dict[tuple[str, str, str], None]] = {}

    def places(self, topic: str = "") -> list[Where]:
        """Return the subscriptions with a crew: all, or those of one topic."""
        return [where for where in self._crews if not topic or where[0] == topic]

    def get(self, where: Where) -> Crew | None:
        return self._crews.get(where)

    def make(self, where: Where) -> Crew:
        found = self._crews.get(where)
        if found is None:
            found = self._crews[where] = Crew()
        return found

    def join(self, where: Where, worker: str, client: NodeId) -> tuple[Hand, bool]:
        """Return the record of a worker, and whether it is new at this connection."""
        crew = self.make(where)
        crew.gone.pop(worker, None)
        hand = crew.hands.get(worker)
        if hand is not None and hand.client == client:
            return hand, False
        if hand is not None:
            self.leave(where, hand)
        hand = crew.hands[worker] = Hand(client, worker)
        self._of_client.setdefault(client, {})[(*where, worker)] = None
        return hand, True

    def leave(self, where: Where, hand: Hand) -> None:
        crew = self._crews[where]
        del crew.hands[hand.worker]
        crew.unsent.pop(hand.worker, None)
        mine = self._of_client[hand.client]
        del mine[(*where, hand.worker)]
        if not mine:
            del self._of_client[hand.client]

    def of_client(self, client: NodeId) -> list[tuple[Where, Hand]]:
        found = []
        for topic, subscription, worker in self._of_client.get(client, {}):
            where = (topic, subscription)
            found.append((where, self._crews[where].hands[worker]))
        return found

    def clients(self) -> list[NodeId]:
        return list(self._of_client)

    def drop(self, where: Where) -> None:
        """Forget a subscription that no longer exists here."""
        crew = self._crews.get(where)
        if crew is not None:
            for hand in list(crew.hands.values()):
                self.leave(where, hand)
            del self._crews[where]

    def tidy(self, where: Where) -> None:
        """Forget a crew that has no workers and no command in flight or to repeat."""
        crew = self._crews.get(where)
        if crew is None or crew.hands or crew.gone:
            return
        if crew.leasing or crew.burying or crew.refusals:
            return
        del self._crews[where]

    def clear(self) -> None:
        self._crews.clear()
        self._of_client.clear()
