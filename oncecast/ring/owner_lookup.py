"""Find the owner of a topic for clients and replicas (REP-4).

A client sends a request to any process, and receives the owner of its topic: the group, its leader
and its replicas. A replica looks up the owner of a key in the same way. Chord finds the process
responsible for the key. That process knows the groups around the key, because it backs them up.

Needs FindRoot and the process's roster. Emits no events.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, NamedTuple, assert_never

from oncecast.dht.events import FindRoot, RootFound
from oncecast.dht.identifiers import Key, key_of_topic
from oncecast.dht.messages import FIRST_NUMBER_BITS
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.ring.events import GroupFacts, KeyOwner, Owner, WhoOwns, WhoseKey, WhoseTopic
from oncecast.ring.roster import Roster
from oncecast.wire.errors import InvalidArgument
from oncecast.wire.frames import Answer, Call, Fetch, Look, LookBroker, Owned, Scan, Work

ASKERS_MAX = 1000  # maximum number of clients and replicas that wait for the owner of one key
SEARCHES_MAX = 10_000
ANSWER_WITHIN = 1.0

Question = Call | Fetch | Work | Look | Scan | LookBroker


class Search(NamedTuple):
    """The clients and replicas waiting for a key's owner, or for the owner of a topic."""

    number: int
    askers: dict[tuple[NodeId, str], None]


class Overdue(Value):
    """Timer: a key lookup has not been answered."""

    key: Key
    number: int


class OwnerLookup(Protocol):
    name = "usher"
    Message: ClassVar = (
        Call | Fetch | Work | Look | Scan | LookBroker | WhoseKey | WhoseTopic | WhoOwns | Owner
    )
    Observed = RootFound
    Timer = Overdue

    def __init__(self, me: NodeId, rng: Random, *, roster: Roster) -> None:
        super().__init__(me, rng)
        self._roster = roster
        # Start at a random number, so that answers to questions from before a restart match none.
        self._number = rng.getrandbits(FIRST_NUMBER_BITS)
        self._searches: dict[Key, Search] = {}
        self._keys: dict[int, Key] = {}
        self._roots: dict[int, NodeId] = {}  # the process that was asked, by question number
        # Number of lookups so far, and the total number of their hops.
        self.searched = self.hops = 0

    def receive(
        self, sender: NodeId, message: Question | WhoseKey | WhoseTopic | WhoOwns | Owner
    ) -> None:
        match message:
            case WhoseKey(key):
                if sender.startswith(f"{self.me}/"):
                    self._search(key, sender, "")
            case WhoseTopic(topic):
                if topic and sender.startswith(f"{self.me}/"):
                    self._search(key_of_topic(topic), sender, topic)
            case WhoOwns(number, key):
                owner = self._roster.owner(key)
                if owner is not None:
                    self.send(sender, Owner(number, owner))
            case Owner(number, owner):
                if number in self._keys and self._roots.get(number) == sender:
                    self._found(self._keys[number], owner)
            case Call() | Fetch() | Work() | Look() | Scan() | LookBroker():
                self._locate(sender, message)
            case _:
                assert_never(message)

    def _locate(self, client: NodeId, question: Question) -> None:
        asked = question.command if isinstance(question, Call) else question
        topic: str = getattr(asked, "topic", "")  # commands about users have no topic
        if topic:
            self._search(key_of_topic(topic), client, topic)
        # A client repeats these requests until they are served.
        elif not isinstance(question, Fetch | Work):
            fact = f"{self.me} is a ring process; name a topic, or ask each group"
            self.send(client, Answer(question.id, InvalidArgument(fact)))

    def _search(self, key: Key, asker: NodeId, topic: str) -> None:
        search = self._searches.get(key)
        if search is not None:
            if len(search.askers) < ASKERS_MAX:
                search.askers[asker, topic] = None
        elif len(self._searches) < SEARCHES_MAX:
            self._number += 1
            self._searches[key] = Search(self._number, {(asker, topic): None})
            self._keys[self._number] = key
            self.later(ANSWER_WITHIN, Overdue(key, self._number))
            self.ask(FindRoot(key))

    def observe(self, event: RootFound) -> None:
        search = self._searches.get(event.key)
        if search is None:
            return
        self.searched += 1
        self.hops += event.hops
        if event.root == self.me:
            self._found(event.key, self._roster.owner(event.key))
        else:
            self._roots[search.number] = event.root
            self.send(event.root, WhoOwns(search.number, event.key))

    def timeout(self, timer: Overdue) -> None:
        search = self._searches.get(timer.key)
        if search is not None and search.number == timer.number:
            self._found(timer.key, self._roster.owner(timer.key))

    def _found(self, key: Key, owner: GroupFacts | None) -> None:
        """Answer all waiting clients and replicas. Without a known owner, they ask again."""
        search = self._searches.pop(key)
        del self._keys[search.number]
        self._roots.pop(search.number, None)
        self.cancel(Overdue(key, search.number))
        if owner is None:
            return
        for asker, topic in search.askers:
            if topic:
                self.send(asker, Owned(topic, owner.group, owner.leader, owner.nodes))
            else:
                self.send(asker, KeyOwner(key, owner, len(self._roster.cards)))
