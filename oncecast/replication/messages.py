"""The messages, records and timers of a replica group.

electing     Canvass → Consent                  then Prepare → Promise | Reject
deciding     Accept → Accepted, to all | Reject
leading      Beat → Heard                       Release: the leader steps down by itself
catching up  Want → Chosen | Lacking | Ahead    WantPiece → Piece    Recall → Recalled | Lacking
joining      Offer → Guide                      comparing  Sum
two groups   Attest → Guide

Each request names the `group` that it is meant for; 0 means any group.
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
    """The value of a slot: an opaque command, a no-op, a membership, or a call to compare."""

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
    """I have no leader. Do you have one?"""

    first: int  # the first slot that the sender is missing
    group: int = 0


class Consent(Value, tag="Consent"):
    """I have no leader either."""

    incarnation: int


class Prepare(Value, tag="Prepare"):
    """May I lead? What have you accepted from slot `first` on?"""

    ballot: Ballot
    first: int
    group: int = 0


class Promise(Value, tag="Promise"):
    """I accept nothing with a lower ballot.

    All slots up to `known` are chosen, and not reported: a truncated log is not an empty one. For
    the slots in `lost` my disk may have lost a vote.
    """

    ballot: Ballot
    incarnation: int
    first: int
    known: int
    votes: tuple[Vote, ...]
    lost: tuple[tuple[int, int], ...]


class Reject(Value, tag="Reject"):
    """I have promised this higher ballot."""

    ballot: Ballot


class Accept(Value, tag="Accept"):
    """Accept these items for the slots from `slot` on. All up to `known` is chosen."""

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
    incarnation: int


class Beat(Value, tag="Beat"):
    """I lead, at time `stamp` of my clock. All up to `known` is chosen."""

    ballot: Ballot
    known: int
    stamp: float
    group: int = 0


class Heard(Value, tag="Heard"):
    """For `bound` seconds of my clock, I promise no other candidate anything."""

    ballot: Ballot
    stamp: float
    incarnation: int
    applied: int
    bound: float


class Release(Value, tag="Release"):
    """I lead no more, and my lease has expired. `successor` should become a candidate."""

    ballot: Ballot
    successor: NodeId


class Want(Value, tag="Want"):
    """Send me the values chosen for the slots from `first` to `last`."""

    first: int
    last: int
    group: int = 0


class Chosen(Value, tag="Chosen"):
    """These were chosen for the slots from `first` on. All up to `known` is chosen."""

    first: int
    items: tuple[Item, ...]
    known: int = 0


class Lacking(Value, tag="Lacking"):
    """I cannot give you this slot; `lost` means that my disk has lost it."""

    slot: int
    lost: bool


class Recall(Value, tag="Recall"):
    """This slot was chosen, and I have lost it. What did you vote for?"""

    slot: int
    group: int = 0


class Recalled(Value, tag="Recalled"):
    """My vote for this slot, or None if I gave none."""

    slot: int
    incarnation: int
    vote: Vote | None


class Ahead(Value, tag="Ahead"):
    """Those slots are gone: fetch my snapshot at `slot`, and the entries from `needed` on."""

    slot: int
    needed: int
    chain: int
    config: Config
    pieces: int
    checksum: int = 0  # checksum of the snapshot; 0 if sent by an older version


class WantPiece(Value, tag="WantPiece"):
    slot: int
    index: int
    group: int = 0


class Piece(Value, tag="Piece"):
    """A piece of a snapshot; `last` means that it ends a chunk."""

    slot: int
    index: int
    data: bytes
    last: bool


class Offer(Value, tag="Offer"):
    """I offer to become a replica, and have applied all up to `applied`."""

    incarnation: int
    applied: int


class Guide(Value, tag="Guide"):
    """Ask this leader; these are the replicas that I know.

    Incarnations and the number of the group are 0: only admitted nodes learn them.
    """

    leader: NodeId
    config: Config


class Attest(Value, tag="Attest"):
    """Tell `node`, which belongs to another group, which replicas you know."""

    node: NodeId


class Sum(Value, tag="Sum"):
    """The digest of my state after `slot`, and the checksum of all slots up to it."""

    slot: int
    chain: int
    digest: bytes


class Stored(Value, tag="Stored"):
    """Sent to itself: the records up to `record` are on disk."""

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
    | Attest
    | Sum
    | Stored
)

# -- records --


class Born(Value, tag="Born"):
    """The first incarnation of this disk; the founder of a group is its first member."""

    incarnation: int
    config: Config


class NewIncarnation(Value, tag="Reborn"):
    """A new incarnation, because the disk may have lost a promise.

    `renewals` counts them; 0 is written by older versions, which did not count.
    """

    incarnation: int
    renewals: int = 0


class Vouch(NamedTuple):
    """A summary of all earlier promises and votes, which limits the doubt after damage.

    It has the highest slot ever accepted, the number of new incarnations, and the number of votes
    that replaced others.
    """

    top: int
    renewals: int
    replaced: int


class Promised(Value, tag="Promised"):
    ballot: Ballot
    vouch: Vouch


class Entry(Value, tag="Entry"):
    """A vote. All up to `applied` was chosen then, with the last values in this log."""

    slot: int
    ballot: Ballot
    kind: int
    data: bytes
    applied: int
    vouch: Vouch


class Again(Value, tag="Again"):
    """A vote for the value that the log has already, with a higher ballot."""

    slot: int
    ballot: Ballot
    vouch: Vouch


class Skipped(Value, tag="Skipped"):
    """A snapshot replaced all slots up to `slot`. Votes for them may never have been chosen."""

    slot: int


class Learned(Value, tag="Learned"):
    """A value that another replica says is chosen."""

    slot: int
    kind: int
    data: bytes


Record = Born | NewIncarnation | Promised | Entry | Again | Skipped | Learned


class Checkpoint(Chunked, tag="Checkpoint"):
    """The snapshot at `slot`, and the facts that a replica must keep."""

    slot: int
    kept: int
    incarnation: int
    promised: Ballot
    vouch: Vouch
    config: Config
    chain: int
    runs: tuple[Run, ...]
    lost: tuple[tuple[int, int], ...]


# -- timers --


class BeatDue(Value):
    """The leader sends the next Beat."""


class Silence(Value):
    """No leader has sent a message."""


class Unanswered(Value):
    """A Prepare or Accept has no majority yet."""


class Flush(Value):
    """All values of this turn go into one Accept."""


class Behind(Value):
    """A chosen slot is missing here."""


class Unclaimed(Value):
    """No replica fetches the snapshot any more."""


class OfferDue(Value):
    """A node that is not a member offers itself again."""


Timer = BeatDue | Silence | Unanswered | Flush | Behind | Unclaimed | OfferDue
