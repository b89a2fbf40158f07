"""Messages between the two groups of a move. The importer asks, and the exporter answers.

    importer → exporter    Survey, Pull, PullParts, Export, Adopted, Abandoned
    exporter → importer    Surveyed, Pulled, PulledParts, Exported, ExportRefused, Released,
                           StillWanted
    a replica that does not lead → either    NotLeader

Only a leader with a lease speaks for its group. The exporter keeps only decided state, so any
leader of the importer may repeat any request.
"""

from __future__ import annotations

from oncecast.broker.holdings import PeerGroup
from oncecast.broker.moves import Import
from oncecast.dht.identifiers import Key
from oncecast.kernel.protocol import NodeId, Value

TOPICS_MAX = 1000  # maximum number of topics per answer


class Survey(Value, tag="Survey"):
    """Ask for the topics of the part up to `until`, sorted by name, after `behind`."""

    move: str
    until: Key
    behind: str = ""


class TopicEnds(Value, tag=False):
    topic: str
    topic_id: int
    first: int
    next: int


class Surveyed(Value, tag="Surveyed"):
    """Topics sorted by name. `more` is set if other topics follow."""

    move: str
    behind: str
    topics: tuple[TopicEnds, ...]
    more: bool
    level: int = 1  # the feature level of the exporter


class Pull(Value, tag="Pull"):
    """Ask for a topic's batches, starting at `offset`."""

    move: str
    topic: str
    topic_id: int
    offset: int


class Pulled(Value, tag="Pulled"):
    """A topic's batches. There are none if the topic ends at `offset` or now has another id."""

    move: str
    topic: str
    offset: int
    batches: tuple[Import, ...]


class PullParts(Value, tag="PullParts"):
    """Ask for staged parts, by source, number and name."""

    move: str
    names: tuple[tuple[str, int, str], ...]


class PulledParts(Value, tag="PulledParts"):
    move: str
    batches: tuple[Import, ...]


class Export(Value, tag="Give"):
    """Ask the exporter to freeze the part up to `until` and send its metadata.

    An exporter at a higher feature level than the importer does not answer.
    """

    move: str
    until: Key
    importer: PeerGroup
    level: int = 1  # the feature level of the importer


class Exported(Value, tag="Given"):
    """The metadata of the frozen part."""

    move: str
    low: Key
    until: Key
    clock: int
    last_topic_id: int
    last_epoch: int
    rows: bytes
    newest: int = 0  # the exporter's last stamp; `clock` is its trusted time
    level: int = 1  # the feature level of the exporter


class ExportRefused(Value, tag="NotGiven"):
    """The exporter does not own the part, or is exporting another part."""

    move: str


class Adopted(Value, tag="Taken"):
    """The importer has adopted the part; the exporter may release it."""

    move: str


class Released(Value, tag="Gone"):
    """The exporter has released the part."""

    move: str


class StillWanted(Value, tag="Waiting"):
    """Ask whether the importer still wants the frozen part."""

    move: str


class Abandoned(Value, tag="Dropped"):
    """The importer has permanently abandoned this move."""

    move: str


class ImportAll(Value, tag="TakeAll"):
    """Ask the next group on the ring to claim everything that the exporter owns."""

    exporter: PeerGroup


class NotLeader(Value, tag="Follow"):
    """The replica does not lead its group. `leader` is empty if it knows no leader."""

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
