"""Restore the log of an earlier run, handle damaged records, and start the replica."""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.errors import Crippled
from oncecast.kernel.protocol import Protocol
from oncecast.replication import messages as m
from oncecast.replication.leader import Leader
from oncecast.replication.learner import Learner
from oncecast.replication.messages import CONFIG, Item
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import NO_MEMBERS, Config, decode_config, encode_config
from oncecast.replication.state import Fetching, Following, Membership, Progress
from oncecast.replication.values import Values
from oncecast.replication.votes import FORGOT, Votes, after


@dataclass(eq=False)
class Recovery:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    following: Following
    values: Values
    votes: Votes
    fetching: Fetching
    leader: Leader
    learner: Learner
    founders: Config
    born: bool = False  # whether the log names this replica's incarnation

    # -- the log --

    def restore(self, record: m.Record | m.Checkpoint) -> None:
        progress, votes = self.progress, self.votes
        match record:
            case m.Entry(slot, ballot, kind, data, applied, vouch):
                votes.vouched(ballot, vouch, slot)
                item = Item(kind, data)
                self._note_config(item)
                # A later vote cannot change a value that is known to be chosen.
                if slot > progress.applied and slot not in progress.learned:
                    self.values.found(slot, self.io.last_record, item)
                    votes.voted(slot, ballot)
                progress.certain = max(progress.certain, applied)
            case m.Learned():
                self._restore_learned(record, Item(record.kind, record.data))
            case m.Again(slot, ballot, vouch):
                votes.vouched(ballot, vouch, slot)
                if slot in votes.ballots:
                    votes.voted(slot, ballot)
            case m.Promised(ballot, vouch):
                votes.vouched(ballot, vouch)
            case m.Skipped(slot):
                progress.skipped = max(progress.skipped, slot)
                progress.certain = max(progress.certain, slot)
                votes.replaced += FORGOT
                votes.counted = None
            case m.NewIncarnation(incarnation, renewals):
                votes.begin_incarnation(incarnation, renewals or votes.renewals + 1)
            case m.Bound(suspicion):
                self.following.bound = suspicion
            case m.Born(incarnation, config, suspicion):
                self.membership.incarnation, self.born = incarnation, True
                self.following.bound = suspicion
                self.membership.start(0, config)
            case m.Checkpoint():
                self._restore_snapshot(record)
        self.learner.apply_known(self.values.items.get)

    def _note_config(self, item: Item) -> None:
        if item.kind == CONFIG:
            configs = self.membership.latest_in_log, decode_config(item.data)
            self.membership.latest_in_log = max(configs, key=lambda each: each.version)

    def _restore_learned(self, record: m.Learned, item: Item) -> None:
        slot, number, votes = record.slot, self.io.last_record, self.votes
        self._note_config(item)
        # The snapshot's index may already refer to a later record.
        if slot > self.progress.applied or number > (self.values.index.get(slot) or 0):
            self.values.found(slot, number, item)
        if slot in votes.ballots:
            votes.replaced += 1
            # The writer may have applied the slot, so its own count may differ.
            votes.counted = None
        if slot > self.progress.applied:
            self.progress.learned[slot] = None

    def _restore_snapshot(self, state: m.Checkpoint) -> None:
        progress, votes, machine = self.progress, self.votes, self.learner.machine
        assert machine is not None, "a snapshot needs a state machine"
        self.membership.incarnation, self.born = state.incarnation, True
        self.following.bound = state.suspicion
        votes.restore_promise(state.promised)
        votes.top, votes.renewals, votes.replaced = state.vouch
        progress.applied = progress.certain = state.slot
        progress.chain = state.chain
        progress.chains.append((state.slot, state.chain))
        self.membership.start(state.slot, state.config)
        self.values.kept = state.kept
        self.values.index.restore(state.runs)
        votes.lost = list(state.lost)
        machine.install(state.slot, state.chunks)

    def damaged(self, first: int, last: int) -> None:
        self.votes.damaged(first, last)
        if not self.born:
            raise Crippled(
                f"replica {self.membership.me}: {self.votes.damage}; they contain its identity",
                "move its data directory aside and restart it, so that it joins again",
            )

    # -- the start --

    def start(self) -> None:
        membership, following = self.membership, self.following
        if not self.born:
            self._begin()
        self._finish()
        bound = self._bound()
        self._change_address()
        whole = self._finish_alone()
        self.learner.start()
        alone = membership.is_alone
        if not whole:
            self._outlive_damage(alone)
        alone = alone and not bound and whole
        # After a restart, earlier answers to a leader are still binding.
        following.resume()
        if alone:
            following.release()
        if not membership.is_member:
            self.io.later(0.0, m.OfferDue())
        elif alone:
            self.leader.lead_alone()
        else:
            self.io.later(following.patience(), m.Silence())

    def _begin(self) -> None:
        """Begin the first incarnation of a replica with an empty disk."""
        membership = self.membership
        membership.incarnation = membership.incarnation or self._new_incarnation()
        config = self.founders
        if config is NO_MEMBERS and not membership.contacts:
            me, group = membership.self_as_member, membership.incarnation
            config = Config(1, (me,), self.options.size, group, membership.known_level)
        membership.start(0, config)
        self.following.bound = self.options.suspicion
        self.io.append(m.Born(membership.incarnation, config, self.following.bound))

    def _new_incarnation(self) -> int:
        return self.io.rng.getrandbits(62) + 1

    def _finish(self) -> None:
        """Apply chosen slots that did not fit in memory. The log can be read now."""
        self.learner.apply_known(self.values.readable)

    def _finish_alone(self) -> bool:
        """Apply the log of a group of one, in which every vote is chosen until the group grows.

        Return False if damaged records may have held something that this replica still needs. It
        may have fetched all of it before. A damaged record stays in the log until a snapshot covers
        it.
        """
        membership, progress, votes = self.membership, self.progress, self.votes
        if votes.damage and votes.promise_uncertain:
            return False
        while progress.applied < self.values.index.end - 1 and membership.is_alone:
            before = progress.applied
            if votes.damage and self.values.readable(before + 1) is None:
                return False
            progress.certain = max(progress.certain, before + 1)
            self._finish()
            if progress.applied == before:
                raise Crippled(
                    f"replica {membership.me}: slot {before + 1} is missing from its log"
                )
            if membership.history.since == progress.applied:
                config = Item(CONFIG, encode_config(membership.config))
                self.values.append_again(progress.applied, config)
        if not votes.damage:
            return True
        return membership.is_alone and not after(progress.applied, votes.lost)

    def _bound(self) -> bool:
        """Return whether another node may still hold a lease from this replica.

        If a leader removes itself from a group of two, the other node is left alone. The leader may
        not know yet that it has been removed.
        """
        config, me = self.membership.config, self.membership.me
        if config.version == 1:
            # No other node was ever a member, so this node may just have a new address.
            return False
        alone = len(config.members) == 1
        own = ("", me, *(config.nodes() if alone else ()))
        return self.votes.promised.node not in own

    def _change_address(self) -> None:
        """Let a group of one change its address, because no other node knows the old address."""
        membership, config = self.membership, self.membership.config
        alone = len(config.members) == 1 and config.members[0].incarnation == membership.incarnation
        if alone and not membership.is_member:
            members = (membership.self_as_member,)
            moved = Config(config.version, members, config.size, config.group, config.level)
            membership.start(self.progress.applied, moved)

    def _outlive_damage(self, alone: bool) -> None:
        """Discard uncertain votes, and look for replicas that the damaged records may have named.

        Raise Crippled if this replica is alone and no other replica is known.
        """
        membership, votes = self.membership, self.votes
        if alone:
            nodes = (*membership.latest_in_log.nodes(), *membership.contacts)
            membership.contacts = tuple(dict.fromkeys(nodes))
            if not self.fetching.sources():
                raise Crippled(
                    f"replica {membership.me}: {votes.damage}, and no other replica has them",
                    'run "oncecast log verify" to list the damaged records, and restore a backup',
                )
        if votes.promise_uncertain:
            votes.begin_incarnation(self._new_incarnation(), votes.renewals + 1)
            self.io.append(m.NewIncarnation(membership.incarnation, votes.renewals))
