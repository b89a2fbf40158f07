"""The vocabulary of a replica group: what replicas say, what they write, what they wait for.

standing     Canvass → Consent                  then Prepare → Promise | Reject
deciding     Accept → Accepted, to all | Reject
leading      Beat → Heard                       Release: the leader gives up by itself
catching up  Want → Chosen | Lacking | Ahead    WantPiece → Piece    Recall → Recalled | Lacking
joining      Offer → Guide                      comparing  Sum

Whatever asks for something names the `group` that it is meant for: 0 is anybody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncecast.kernel.protocol import Chunked, NodeId, Value
from oncecast.replication.ballot import Ballot
from oncecast.replication.index import Run
from oncecast.replication.quorum import Config

COMMAND, NOOP, CONFIG, CHECK = range(4)


class Item(NamedTuple):
    """What a slot holds: an opaque command, nothing, a membership, or a call to compare."""

    kind: int
    data: bytes


class Vote(NamedTuple):
    slot: int
    ballot: Ballot
    item: Item


def highest(votes: Iterable[Vote]) -> Vote | None:
    return max(votes, key=lambda vote: vote.ballot, default=None)


# -- messages --


class Canvass(Value, tag="Canvass"):
    """I hear of no leader. If I stood, would you hear me?"""

    first: int  # slot that it lacks
    group: int = 0


class Consent(Value, tag="Consent"):
    """I hear of none either."""

    life: int


class Prepare(Value, tag="Prepare"):
    """May I lead? What have you accepted from slot `first` on?"""

    ballot: Ballot
    first: int
    group: int = 0


class Promise(Value, tag="Promise"):
    """No lower ballot gets anything from me any more.

    All slots up to `known` are chosen, and not reported: a log that was cut is not an empty one.
    Of the slots in `lost` I may have accepted something that my disk has lost.
    """

    ballot: Ballot
    life: int
    first: int
    known: int
    votes: tuple[Vote, ...]
    lost: tuple[tuple[int, int], ...]


class Reject(Value, tag="Reject"):
    """I have promised this one."""

    ballot: Ballot


class Accept(Value, tag="Accept"):
    """Items for the slots from `slot` on. All up to `known` is chosen."""

    ballot: Ballot
    slot: int
    items: tuple[Item, ...]
    known: int
    group: int = 0


class Accepted(Value, tag="Accepted"):
    """The items of these slots are on my disk, with this ballot."""

    ballot: Ballot
    first: int
    last: int
    life: int


class Beat(Value, tag="Beat"):
    """I lead, and said so at `stamp` of my clock. All up to `known` is chosen."""

    ballot: Ballot
    known: int
    stamp: float
    group: int = 0


class Heard(Value, tag="Heard"):
    """For `bound` seconds of my clock, I promise nobody else anything."""

    ballot: Ballot
    stamp: float
    life: int
    applied: int
    bound: float


class Release(Value, tag="Release"):
    """I have ceased to lead: nobody needs to wait for my lease. `heir` should stand."""

    ballot: Ballot
    heir: NodeId


class Want(Value, tag="Want"):
    """Send me what was chosen for the slots from `first` to `last`."""

    first: int
    last: int
    group: int = 0


class Chosen(Value, tag="Chosen"):
    """These were chosen for the slots from `first` on. All up to `known` is chosen."""

    first: int
    items: tuple[Item, ...]
    known: int = 0


class Lacking(Value, tag="Lacking"):
    """I cannot give you this slot; `lost`: because my disk has lost it."""

    slot: int
    lost: bool


class Recall(Value, tag="Recall"):
    """This slot was chosen, and I have lost it. What did you vote for?"""

    slot: int
    group: int = 0


class Recalled(Value, tag="Recalled"):
    """My vote for this slot, whatever was chosen; None: I gave none."""

    slot: int
    life: int
    vote: Vote | None


class Ahead(Value, tag="Ahead"):
    """What you want is gone: take my state at `place`, and what it needs from `needed` on."""

    place: int
    needed: int
    chain: int
    config: Config
    pieces: int
    checksum: int = 0  # of the whole state; 0: of an older version, which tells none


class WantPiece(Value, tag="WantPiece"):
    place: int
    index: int
    group: int = 0


class Piece(Value, tag="Piece"):
    """`last` says that the piece ends a chunk of the state."""

    place: int
    index: int
    data: bytes
    last: bool


class Offer(Value, tag="Offer"):
    """I would be a replica, and have all up to `applied`."""

    life: int
    applied: int


class Guide(Value, tag="Guide"):
    """Ask this one; these are the replicas that I know of."""

    leader: NodeId
    config: Config


class Sum(Value, tag="Sum"):
    """What all up to `slot` has led to at my place."""

    slot: int
    chain: int
    digest: bytes


class Stored(Value, tag="Stored"):
    """To itself: the records up to `record` are on disk."""

    record: int


Message = (
    Canvass
    | Consent
    | Prepare
    | Promise
    | Reject
    | Accept
    | Accepted
    | Beat
    | Heard
    | Release
    | Want
    | Chosen
    | Lacking
    | Recall
    | Recalled
    | Ahead
    | WantPiece
    | Piece
    | Offer
    | Guide
    | Sum
    | Stored
)

# -- records --


class Born(Value, tag="Born"):
    """The life of this disk begins; who founds a group is its first member."""

    life: int
    config: Config


class Reborn(Value, tag="Reborn"):
    """The disk has lost what may have been a promise: whoever made it is no more.

    `rebirths` counts how often that has happened; 0: written by a version that did not say."""

    life: int
    rebirths: int = 0


class Vouch(NamedTuple):
    """What the records of promises and votes say of all that came before them, for who finds damage
    there: the highest slot that was ever accepted, how often this disk was reborn, and how often a
    vote took the place of another."""

    top: int
    rebirths: int
    replaced: int


class Promised(Value, tag="Promised"):
    ballot: Ballot
    vouch: Vouch


class Entry(Value, tag="Entry"):
    """Accepted. All up to `applied` was chosen then, and is what this log last said of it."""

    slot: int
    ballot: Ballot
    kind: int
    data: bytes
    applied: int
    vouch: Vouch


class Again(Value, tag="Again"):
    """What stands at this slot was accepted again, with a higher ballot."""

    slot: int
    ballot: Ballot
    vouch: Vouch


class Skipped(Value, tag="Skipped"):
    """A state was taken for all up to `place`: what this log says of slots before that may never
    have been chosen, unless it was learned."""

    place: int


class Learned(Value, tag="Learned"):
    """Chosen, as another replica said."""

    slot: int
    kind: int
    data: bytes


Record = Born | Reborn | Promised | Entry | Again | Skipped | Learned


class Checkpoint(Chunked, tag="Checkpoint"):
    """State: what all up to `place` has led to, and what a replica must not forget."""

    place: int
    kept: int
    life: int
    promised: Ballot
    vouch: Vouch
    config: Config
    chain: int
    runs: tuple[Run, ...]
    lost: tuple[tuple[int, int], ...]


# -- timers --


class BeatDue(Value):
    """The leader's."""


class Silence(Value):
    """Nothing was heard of a leader."""


class Unanswered(Value):
    """Prepare and Accept, as long as they have no majority."""


class Flush(Value):
    """What was proposed in this turn goes together."""


class Behind(Value):
    """Chosen, and not here."""


class Unclaimed(Value):
    """A state that was asked for, and is fetched by nobody."""


class OfferDue(Value):
    """An outsider's."""


Timer = BeatDue | Silence | Unanswered | Flush | Behind | Unclaimed | OfferDue
