"""What the groups of a move say to each other. The taker asks, and asks again; the giver answers.

    taker → giver    Survey, Pull, Give, Taken · Dropped
    giver → taker    Surveyed, Pulled, Given, NotGiven, Gone · Waiting
    a replica that does not lead → either    Follow

Only who leads its group and is sure of it speaks for it. Nothing is remembered by the giver but
what it has decided, so a question may come as often as it likes, from any leader of the taker.
"""

from __future__ import annotations

from oncecast.broker.holdings import PeerGroup
from oncecast.broker.moves import Import
from oncecast.dht.identifiers import Key
from oncecast.kernel.protocol import NodeId, Value

TOPICS_MAX = 1000  # in one answer


class Survey(Value, tag="Survey"):
    """Which topics behind this one would be mine, up to `until`?"""

    move: str
    until: Key
    behind: str = ""


class TopicEnds(Value, tag=False):
    topic: str
    topic_id: int
    first: int
    next: int


class Surveyed(Value, tag="Surveyed"):
    """In the order of their names; `more` come behind the last of them."""

    move: str
    behind: str
    topics: tuple[TopicEnds, ...]
    more: bool


class Pull(Value, tag="Pull"):
    """What lies there from `offset` on?"""

    move: str
    topic: str
    topic_id: int
    offset: int


class Pulled(Value, tag="Pulled"):
    """Nothing: it ends there, or is another topic by now."""

    move: str
    topic: str
    offset: int
    batches: tuple[Import, ...]


class PullParts(Value, tag="PullParts"):
    """The staged parts of these names, with their sources and numbers."""

    move: str
    names: tuple[tuple[str, int, str], ...]


class PulledParts(Value, tag="PulledParts"):
    move: str
    batches: tuple[Import, ...]


class Export(Value, tag="Give"):
    """Freeze what lies up to `until`, and tell me all about it."""

    move: str
    until: Key
    importer: PeerGroup


class Exported(Value, tag="Given"):
    """It is frozen: so it was, beside its messages."""

    move: str
    low: Key
    until: Key
    clock: int
    last_topic_id: int
    last_epoch: int
    rows: bytes
    newest: int = 0  # the last stamp of the giver; `clock` is its trusted time


class ExportRefused(Value, tag="NotGiven"):
    """It is not mine to give, or somebody else is being given something."""

    move: str


class Adopted(Value, tag="Taken"):
    """It is adopted: release it."""

    move: str


class Released(Value, tag="Gone"):
    """It is released."""

    move: str


class StillWanted(Value, tag="Waiting"):
    """It is frozen for you; do you still want it?"""

    move: str


class Abandoned(Value, tag="Dropped"):
    """I do not, and never will."""

    move: str


class ImportAll(Value, tag="TakeAll"):
    """All that I have ends where yours begins: claim it."""

    exporter: PeerGroup


class NotLeader(Value, tag="Follow"):
    """I do not lead: these are the replicas, and this one may."""

    move: str
    leader: NodeId
    nodes: tuple[NodeId, ...]


MoveMessage = (
    Survey
    | Surveyed
    | Pull
    | Pulled
    | PullParts
    | PulledParts
    | Export
    | Exported
    | ExportRefused
    | Adopted
    | Released
    | StillWanted
    | Abandoned
    | ImportAll
    | NotLeader
)
