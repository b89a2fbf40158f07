"""The messages, records and timers of a replica group.

electing     Canvass → Consent                  then Prepare → Promise | Reject
deciding     Accept → Accepted, to all | Reject
leading      Beat → Heard                       Release: the leader steps down voluntarily
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
    """The value of a slot: an opaque command, a no-op, a membership, or a request to compare."""

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
    """Ask a member whether it has a leader, because the sender has none."""

    first: int  # the first slot that the sender is missing
    group: int = 0


class Consent(Value, tag="Consent"):
    """Answer that the sender has no leader either."""

    incarnation: int


class Prepare(Value, tag="Prepare"):
    """Ask for a promise, and for the votes from slot `first` on."""

    ballot: Ballot
    first: int
    group: int = 0


class Promise(Value, tag="Promise"):
    """Promise to accept nothing with a lower ballot.

    All slots up to `known` are chosen and not reported, because the log may be truncated. For the
    slots in `lost`, the sender's disk may have lost a vote.
    """

    ballot: Ballot
    incarnation: int
    first: int
    known: int
    votes: tuple[Vote, ...]
    lost: tuple[tuple[int, int], ...]


class Reject(Value, tag="Reject"):
    """Answer that the sender has promised this higher ballot."""

    ballot: Ballot


class Accept(Value, tag="Accept"):
    """Ask to accept items for the slots from `slot` on. All slots up to `known` are chosen."""

    ballot: Ballot
    slot: int
    items: tuple[Item, ...]
    known: int
    group: int = 0


class Accepted(Value, tag="Accepted"):
    """Confirm that the items of these slots are on the sender's disk, with this ballot."""

    ballot: Ballot
    first: int
    last: int
    incarnation: int


class Beat(Value, tag="Beat"):
    """The leader's heartbeat, sent at `stamp` on its clock. All slots up to `known` are chosen."""

    ballot: Ballot
    known: int
    stamp: float
    group: int = 0


class Heard(Value, tag="Heard"):
    """Agree to promise nothing to other candidates for `bound` seconds on the sender's clock."""

    ballot: Ballot
    stamp: float
    incarnation: int
    applied: int
    bound: float
    level: int = 1  # the highest entry level that the sender can read


class Release(Value, tag="Release"):
    """Announce that the sender gives up its lease. `successor` should become a candidate."""

    ballot: Ballot
    successor: NodeId


class Want(Value, tag="Want"):
    """Ask for the values chosen for the slots from `first` to `last`."""

    first: int
    last: int
    group: int = 0


class Chosen(Value, tag="Chosen"):
    """The chosen values of the slots from `first` on. All slots up to `known` are chosen."""

    first: int
    items: tuple[Item, ...]
    known: int = 0


class Lacking(Value, tag="Lacking"):
    """Answer that the sender cannot send this slot, which its disk has lost if `lost` is set."""

    slot: int
    lost: bool


class Recall(Value, tag="Recall"):
    """Ask for the receiver's vote for a chosen slot that the sender has lost."""

    slot: int
    group: int = 0


class Recalled(Value, tag="Recalled"):
    """The sender's vote for this slot, or None if it has not voted."""

    slot: int
    incarnation: int
    vote: Vote | None


class Ahead(Value, tag="Ahead"):
    """Offer the snapshot at `slot` and the entries from `needed` on, instead of deleted slots."""

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
    """A piece of a snapshot. `last` marks the last piece of a chunk."""

    slot: int
    index: int
    data: bytes
    last: bool


class Offer(Value, tag="Offer"):
    """Offer to become a replica. The sender has applied all slots up to `applied`."""

    incarnation: int
    applied: int
    level: int = 1  # the highest entry level that the sender can read


class Guide(Value, tag="Guide"):
    """Name the leader and the replicas that the sender knows.

    The incarnations and the group number are 0, because only admitted nodes learn them.
    """

    leader: NodeId
    config: Config


class Attest(Value, tag="Attest"):
    """Ask the receiver to tell `node`, a member of another group, which replicas it knows."""

    node: NodeId


class Sum(Value, tag="Sum"):
    """The digest of the sender's state after `slot`, and the checksum of all slots up to it."""

    slot: int
    chain: int
    digest: bytes


class Stored(Value, tag="Stored"):
    """A message from a node to itself: the records up to `record` are on disk."""

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
    """The first incarnation of this disk. The founder of a group is its first member.

    `suspicion` is as in Bound; older versions omitted it.
    """

    incarnation: int
    config: Config
    suspicion: float = 0.0


class Bound(Value, tag="Bound"):
    """From now on, an answer to a leader binds this replica for `suspicion` seconds."""

    suspicion: float


class NewIncarnation(Value, tag="Reborn"):
    """A new incarnation, which begins because the disk may have lost a promise.

    `renewals` counts the new incarnations. Older versions did not count and wrote 0.
    """

    incarnation: int
    renewals: int = 0


class Vouch(NamedTuple):
    """A summary of all earlier promises and votes, which limits the uncertainty after damage.

    `top` is the highest slot ever accepted, `renewals` the number of new incarnations, and
    `replaced` the number of votes that replaced other votes.
    """

    top: int
    renewals: int
    replaced: int


class Promised(Value, tag="Promised"):
    ballot: Ballot
    vouch: Vouch


class Entry(Value, tag="Entry"):
    """A vote. All slots up to `applied` had been chosen, with the last values in this log."""

    slot: int
    ballot: Ballot
    kind: int
    data: bytes
    applied: int
    vouch: Vouch


class Again(Value, tag="Again"):
    """A vote with a higher ballot for a value that the log already has."""

    slot: int
    ballot: Ballot
    vouch: Vouch


class Skipped(Value, tag="Skipped"):
    """A snapshot replaced all slots up to `slot`, whose votes may never have been chosen."""

    slot: int


class Learned(Value, tag="Learned"):
    """A value that another replica reports as chosen."""

    slot: int
    kind: int
    data: bytes


Record = Born | Bound | NewIncarnation | Promised | Entry | Again | Skipped | Learned


class Checkpoint(Chunked, tag="Checkpoint"):
    """The snapshot at `slot`, and the rest of the state that a replica must keep."""

    slot: int
    kept: int
    incarnation: int
    promised: Ballot
    vouch: Vouch
    config: Config
    chain: int
    runs: tuple[Run, ...]
    lost: tuple[tuple[int, int], ...]
    suspicion: float = 0.0  # as in Bound; 0 in snapshots of older versions


# -- timers --


class BeatDue(Value):
    """The leader must send the next Beat."""


class Silence(Value):
    """No leader has sent a message for too long."""


class Unanswered(Value):
    """A Prepare or Accept has no majority yet."""


class Flush(Value):
    """Send all values that were proposed in this turn in one Accept."""


class Behind(Value):
    """A chosen slot is missing here."""


class Unclaimed(Value):
    """No replica has fetched the snapshot for some time."""


class OfferDue(Value):
    """A node that is not a member must offer itself again."""


Timer = BeatDue | Silence | Unanswered | Flush | Behind | Unclaimed | OfferDue
