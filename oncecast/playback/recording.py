"""A recording: the events of a run, as rows in the order of time.

It holds the steps of the nodes, the messages between them, and the changes of their state. It also
holds the votes of replicas, the faults, and the operations of clients. The number of a step or a
message never changes, even after older rows were dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple

NONE = -1
NETWORK = "*"  # the node of a step that concerns the network

State = int | str
Fate = Literal["got", "lost", "cut", "down", "unsent", "held", "open"]


class Step(NamedTuple):
    """One input of one node, or a fault. `cause` is the number of an earlier step, or NONE."""

    time: float
    node: str
    kind: str  # start, request, receive, wake, down, synced, call, return; or a fault
    text: str
    effects: tuple[str, ...] = ()
    cause: int = NONE
    message: int = NONE  # the message that a `receive` handles
    name: str = ""  # the type of the request, timer or message


@dataclass(slots=True)
class Message:
    """One copy of a message, and its fate.

    got       it was received
    lost      it was lost by chance
    cut       it was lost in a partition
    down      the receiver was not running
    unsent    the sender crashed before the message could leave it
    held      a fault still holds it at the end of the run
    open      it is in flight at the end of the run
    """

    number: int
    name: str  # type of the message
    sender: str
    to: str
    text: str
    sent: int  # number of the step that sent it
    left: float = -1.0  # when it left the sender, after its records were on disk
    due: float = -1.0  # when it reaches the receiver
    got: int = NONE  # number of the step that received it
    fate: Fate = "open"


class Change(NamedTuple):
    """From step `step` on, the state `key` of a node has this value; "" if it has no value."""

    step: int
    node: str
    key: str
    value: State


class Vote(NamedTuple):
    """From step `step` on, a replica's log has this value in a slot; none if `ballot` is ""."""

    step: int
    node: str
    slot: int
    ballot: str
    text: str
    checksum: int


@dataclass(slots=True)
class Fault:
    """A fault that lasts: a front of the network, or loss or duplication by chance.

    An empty side means all other nodes. `both` is set if the front blocks both directions.
    """

    kind: str
    begin: float
    senders: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    both: bool = False
    amount: float = 0.0
    end: float = -1.0  # -1 until it ends


class Operation(NamedTuple):
    """An operation of a client. `blamed` is set if it belongs to a counterexample."""

    client: str
    kind: str
    text: str
    call: float
    returned: float = -1.0  # -1 if it was not answered
    error: str = ""
    blamed: bool = False


@dataclass
class Violation:
    """A broken promise, and the numbers of the steps that explain it, oldest first.

    `chain` leads to the step that broke the promise. `related` has other steps about the same slots
    and nodes. `slots` are those that the text names, and those whose value a named replica changed.
    """

    text: str
    time: float
    step: int = NONE
    chain: list[int] = field(default_factory=list)
    related: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)


@dataclass
class Recording:
    """`first` is the number of the first step that is kept; `opening` is the state before it."""

    title: str = ""
    source: str = "simulation"  # or: trace, history
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # limits of this recording, for its reader
    begin: float = 0.0
    end: float = 0.0
    nodes: dict[str, None] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    violation: Violation | None = None
    first: int = 0

    @property
    def next(self) -> int:
        """Return the number of the next step."""
        return self.first + len(self.steps)

    def step(self, number: int) -> Step | None:
        """Return a step, or None if it was dropped."""
        return self.steps[number - self.first] if number >= self.first else None

    def drop(self, steps: int) -> None:
        """Drop the oldest steps. The rows that describe the state after them are kept."""
        self.first += steps
        self.begin = self.steps[steps - 1].time
        del self.steps[:steps]
        self.changes = self._folded(self.changes)
        self.votes = self._folded_votes()
        self.messages = {
            number: each
            for number, each in self.messages.items()
            if each.got >= self.first or each.due > self.begin or each.fate in ("held", "open")
        }
        self.faults = [each for each in self.faults if each.end < 0 or each.end > self.begin]

    def _folded(self, changes: list[Change]) -> list[Change]:
        opening: dict[tuple[str, str], Change] = {}
        split = next((at for at, each in enumerate(changes) if each.step >= self.first), None)
        split = len(changes) if split is None else split
        for each in changes[:split]:
            opening[each.node, each.key] = each._replace(step=self.first)
        return [*opening.values(), *changes[split:]]

    def _folded_votes(self) -> list[Vote]:
        """Keep the last vote for each slot that a replica had not left behind."""
        split = next((at for at in count() if at == len(self.votes) or self._kept(at)), 0)
        opening: dict[tuple[str, int], Vote] = {}
        highest = max((each.slot for each in self.votes[:split]), default=0)
        for each in self.votes[:split]:
            if each.slot > highest - SLOTS_KEPT:
                opening[each.node, each.slot] = each._replace(step=self.first)
        return [*opening.values(), *self.votes[split:]]

    def _kept(self, at: int) -> bool:
        return self.votes[at].step >= self.first


SLOTS_KEPT = 256  # number of slots before the dropped part's last one whose votes are kept
