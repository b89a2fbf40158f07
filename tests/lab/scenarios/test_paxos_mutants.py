"""Check that storms over three or five replicas detect each missing Multi-Paxos rule."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.broker.service import Service
from oncecast.lab.scenarios.draw import Draw, draw
from oncecast.lab.scenarios.paxos import play_drawn
from oncecast.lab.scenarios.paxos_ledger import Ledger
from oncecast.replication.acceptor import Acceptor
from oncecast.replication.catchup import CatchUp
from oncecast.replication.comparing import Comparison
from oncecast.replication.index import SlotIndex
from oncecast.replication.leader import Leader
from oncecast.replication.learner import Learner
from oncecast.replication.messages import Learned, Skipped
from oncecast.replication.options import GroupOptions
from oncecast.replication.promises import Promises
from oncecast.replication.quorum import Config, Tallies
from oncecast.replication.reconfiguration import Reconfiguration
from oncecast.replication.recovery import Recovery
from oncecast.replication.retirement import Retirement
from oncecast.replication.roster import Roster
from oncecast.replication.state import Fetching, Following, Membership
from oncecast.replication.supply import TRIES, Supplier, Transfer
from oncecast.replication.values import Values
from oncecast.replication.votes import Votes
from oncecast.simulator.simulated import Simulation
from tests.lab.scenarios import test_paxos_rules
from tests.mutants import Mutant, Plant, assert_detected, exact, replaced
from tests.replication import (
    test_acceptor,
    test_alone,
    test_damage_history,
    test_election,
    test_leader,
    test_learner,
    test_lost_records,
    test_membership,
    test_membership_exactly,
    test_newcomers,
    test_promises,
    test_replaced,
    test_restart,
    test_retiring,
    test_shorter_suspicion,
    test_supply,
    test_supply_exactly,
    test_two_groups,
)

pytestmark = pytest.mark.mutants

SEEDS = 200
MUTANTS: list[Mutant] = []
Detector = Callable[[int], object]


def storm(seed: int, *, sessions: bool = False) -> None:
    sim, nodes = Simulation(seed), 3 + 2 * (seed % 2)
    play_drawn(sim, nodes, replace(draw(seed, nodes), sessions=sessions))
    sim.finish()


def storm_with_fixed_options(seed: int) -> None:
    """Damage matters most in a long storm with many slots in flight, which few seeds draw."""
    sim = Simulation(seed)
    play_drawn(sim, 3 + 2 * (seed % 2), Draw())
    sim.finish()


def storm_with_sessions(seed: int) -> None:
    storm(seed, sessions=True)


def another_value_is_chosen(seed: int) -> None:
    test_leader.test_value_from_another_leader_is_reported_without_a_token()


def founder_loses_its_disk(seed: int) -> None:
    try:
        test_two_groups.test_founder_that_lost_its_disk_stops_and_the_group_keeps_its_log()
    except pytest.fail.Exception as failed:  # no violation was raised
        raise AssertionError(str(failed)) from failed


def lone_replica_lost(what: str) -> None:
    try:
        test_restart.test_lone_replica_that_lost_a_slot_after_the_removal_refuses_to_start(what)
    except pytest.fail.Exception as failed:  # no violation was raised
        raise AssertionError(str(failed)) from failed


def lone_replica_lost_a_vote(seed: int) -> None:
    lone_replica_lost("vote")


def lone_replica_lost_its_incarnation(seed: int) -> None:
    lone_replica_lost("incarnation")


def candidate_is_removed(seed: int) -> None:
    test_election.test_removed_candidate_sends_no_release()


def disk_is_lost_beside_a_silent_member(seed: int) -> None:
    test_replaced.test_group_survives_a_lost_disk_while_a_silent_member_is_replaced_and_returns(
        "other", 0.0
    )


def snapshot_is_installed(seed: int) -> None:
    test_supply.test_snapshot_is_installed_once_all_its_entries_have_arrived()


def two_snapshots_are_fetched(seed: int) -> None:
    test_supply.test_pieces_from_two_snapshots_are_not_mixed()


def non_member_reports_a_vote(seed: int) -> None:
    test_promises.test_vote_from_a_non_member_does_not_count()


def candidate_lacks_slots(seed: int) -> None:
    test_election.test_candidate_that_is_behind_requests_missing_slots_until_they_arrive()


def slot_is_unreadable(seed: int) -> None:
    test_learner.test_unreadable_slot_is_recovered_from_votes_of_other_members()


def all_known_members_are_behind(seed: int) -> None:
    test_learner.test_slot_missing_on_all_known_members_is_requested_from_the_leader()


def restart_finds_many_pending_votes(seed: int) -> None:
    test_restart.test_slot_with_two_votes_is_restored_with_the_last_value()


def rules_check_a_restart(seed: int) -> None:
    test_paxos_rules.judge_a_restart()


def restart_finds_a_gap_in_the_log(seed: int) -> None:
    test_restart.test_slots_after_a_gap_are_applied_once_the_gap_is_filled()


def replica_loses_records(seed: int) -> None:
    test_damage_history.History(Random(seed)).run(60)


def new_incarnation_record_is_lost(seed: int) -> None:
    test_lost_records.test_lost_new_incarnation_record_makes_all_earlier_votes_doubtful()


def second_restart_finds_more_damage(seed: int) -> None:
    test_lost_records.test_doubtful_votes_stay_doubtful_if_the_next_restart_finds_more_damage()


def learned_record_is_lost(seed: int) -> None:
    lost = Learned(1, 0, b"new")
    test_lost_records.test_record_lost_between_two_restarts_makes_votes_doubtful(lost)


def skipped_record_is_lost(seed: int) -> None:
    lost = Skipped(1)
    test_lost_records.test_record_lost_between_two_restarts_makes_votes_doubtful(lost)


def learned_value_is_promised(seed: int) -> None:
    test_lost_records.test_promise_reports_learned_values_with_the_highest_ballot()


def founder_restarts_after_another_replica_joined(seed: int) -> None:
    test_lost_records.test_founder_does_not_apply_votes_after_another_replica_joined()


def last_replica_restarts(seed: int) -> None:
    test_alone.test_last_replica_waits_for_the_lease_of_its_former_leader()


def newcomer_joins_under_load(seed: int) -> None:
    test_newcomers.test_newcomer_that_has_all_reported_slots_is_added_under_load()


def newcomer_has_nearly_caught_up(seed: int) -> None:
    test_newcomers.test_newcomer_gets_proposals_once_it_has_nearly_caught_up()


def newcomer_joins_a_lone_leader(seed: int) -> None:
    test_newcomers.test_newcomer_gets_no_proposals_from_a_lone_leader()


def newcomer_finds_a_complete_group(seed: int) -> None:
    test_newcomers.test_newcomer_gets_no_more_proposals_when_the_group_is_complete()


def newcomer_falls_behind(seed: int) -> None:
    test_newcomers.test_newcomer_that_falls_behind_gets_no_more_proposals()


def newcomer_never_catches_up(seed: int) -> None:
    test_newcomers.test_newcomer_that_never_catches_up_does_not_block_another()


def newcomer_replaces_a_member_under_load(seed: int) -> None:
    test_newcomers.test_newcomer_replaces_a_lost_member_under_constant_load(1)


def slot_is_missing(seed: int) -> None:
    test_newcomers.test_memory_is_bounded_in_bytes_while_a_slot_is_missing()


def new_member_has_no_slots_yet(seed: int) -> None:
    test_newcomers.test_member_is_removed_only_after_most_other_members_have_all_decided_slots()


def disk_is_slow(seed: int) -> None:
    test_newcomers.test_answer_to_a_beat_counts_only_slots_on_disk()


def newcomer_becomes_a_member_without_a_leader(seed: int) -> None:
    test_newcomers.test_new_member_sets_its_suspicion_timer_even_without_a_beat()


def leader_retires(seed: int) -> None:
    test_retiring.test_leader_hands_over_to_the_most_advanced_follower()


def successor_is_lost(seed: int) -> None:
    test_retiring.test_leader_asks_the_next_follower_if_the_link_to_the_first_breaks()


def retired_replica_gets_a_release(seed: int) -> None:
    test_retiring.test_retired_replica_never_becomes_a_candidate_again()


def votes_exceed_one_message(seed: int) -> None:
    test_lost_records.test_promise_reports_votes_beyond_its_byte_limit_as_lost()


def votes_are_reported_in_parts(seed: int) -> None:
    test_lost_records.test_member_that_could_not_report_all_votes_is_asked_again()


def founder_restarts_with_many_undecided_slots(seed: int) -> None:
    test_lost_records.test_founder_applies_all_its_votes_before_it_starts()


def old_check_is_applied(seed: int) -> None:
    test_lost_records.test_digest_from_an_old_check_is_not_sent_to_peers()


def next_slot_is_already_chosen(seed: int) -> None:
    test_lost_records.test_leader_steps_down_instead_of_proposing_for_a_chosen_slot()


def value_is_replaced_before_it_is_on_disk(seed: int) -> None:
    test_lost_records.test_value_stays_in_memory_until_its_newest_record_is_on_disk()


def votes_are_lost(seed: int) -> None:
    test_lost_records.test_lost_slots_stay_lost_until_they_are_applied()


def mutant_by(rule: str, plant: Plant, detector: Detector = storm, seeds: int = SEEDS) -> None:
    MUTANTS.append(Mutant(rule, plant, detector, seeds))


def mutant(
    rule: str, owner: Any, name: str, text: str, instead: str, own_test: Detector | None = None
) -> None:
    """Add a mutant. Set `own_test` where storms would need thousands of seeds."""

    plant = replaced(owner, name, text, instead)
    if own_test is None:
        mutant_by(rule, plant)
    else:
        mutant_by(rule, plant, own_test, 1)


def damage_mutant(rule: str, owner: Any, name: str, text: str, instead: str) -> None:
    """Add a mutant that a single replica with a damaged log must detect."""
    mutant(rule, owner, name, text, instead)
    MUTANTS[-1] = MUTANTS[-1]._replace(detector=replica_loses_records, seeds=2000)


# -- replies wait for the disk --

mutant(
    "a promise waits for the disk",
    Acceptor,
    "on_prepare",
    "self.options.promise_bytes))",
    "self.options.promise_bytes), after=0)",
)
mutant(
    "a vote waits for the disk",
    Acceptor,
    "on_accept",
    "last, membership.incarnation))",
    "last, membership.incarnation), after=0)",
)
mutant(
    "the replica's own vote waits for the disk",
    Values,
    "say_stored",
    "Stored(self.io.last_record))",
    "Stored(self.io.last_record), after=0)",
)
mutant(
    "a replica that is far behind acknowledges only stored slots",
    Votes,
    "accept",
    "return min(first + len(items) - 1, reach)",
    "return first + len(items) - 1",
)

# -- ballots only grow --

mutant(
    "a replica does not promise a ballot below its promise",
    Acceptor,
    "on_prepare",
    "if ballot < votes.promised:",
    "if False:",
)
mutant(
    "a replica does not accept a ballot below its promise",
    Acceptor,
    "on_accept",
    "if ballot < votes.promised:",
    "if False:",
)
mutant(
    "a promise is written to disk",
    Votes,
    "store_promise",
    "self.io.append(m.Promised(ballot, self.vouch))",
    "0",
)
mutant(
    "a promise is restored after a restart",
    Votes,
    "vouched",
    "self.restore_promise(ballot)",
    "pass",
)
mutant(
    "a snapshot includes the promise",
    Recovery,
    "_restore_snapshot",
    "votes.restore_promise(state.promised)",
    "pass",
)
mutant(
    "a vote is restored after a restart",
    Recovery,
    "restore",
    "self.values.found(slot, self.io.last_record, item)\n                votes.voted(slot, ballot)",
    "self.values.found(slot, self.io.last_record, item)",
)
mutant(
    "a repeated vote is restored with its last ballot",
    Recovery,
    "restore",
    "if slot in votes.ballots:\n                votes.voted(slot, ballot)",
    "pass",
)
mutant(
    "a vote is restored with its last value, however many slots are pending",
    Values,
    "found",
    "self.let_go(slot)",
    "if slot in self.items and not self._may_hold_more():\n        return",
    restart_finds_many_pending_votes,
)
MUTANTS.append(
    MUTANTS[-1]._replace(
        rule="a vote restored with another value breaks a rule of the storms",
        detector=rules_check_a_restart,
    )
)
mutant(
    "a tail that does not fit in memory is applied after the restore",
    Recovery,
    "start",
    "self._finish()",
    "pass",
    restart_finds_a_gap_in_the_log,
)
mutant(
    "a higher ballot ends a term",
    Leader,
    "outrun",
    "self.step_down()",
    "pass",
)

# -- values that may be chosen are kept --

mutant(
    "the value with the highest ballot is proposed",
    Promises,
    "value",
    "highest(votes[member] for member in config.members if member in votes)",
    "next((votes[member] for member in config.members if member in votes), None)",
)
mutant(
    "votes from nodes outside the membership do not count",
    Promises,
    "value",
    "votes[member] for member in config.members if member in votes",
    "vote for vote in votes.values()",
    non_member_reports_a_vote,
)
mutant(
    "a candidate asks again for missing slots",
    Leader,
    "on_promise",
    "self.fetching.await_more()",
    "pass",
    candidate_lacks_slots,
)
mutant(
    "a lost slot is recovered from the votes of a majority",
    CatchUp,
    "on_recalled",
    "and config.agreed(votes)",
    "",
    slot_is_unreadable,
)
mutant(
    "a lost slot is recovered",
    CatchUp,
    "on_lacking",
    "self.io.send(sender, Recall(slot, self.membership.group), after=0)",
    "pass",
    slot_is_unreadable,
)
mutant(
    "a leader outside the known membership is asked for missing slots",
    Fetching,
    "sources",
    "leader, *contacts",
    "*contacts",
    all_known_members_are_behind,
)
mutant(
    "accepted values are carried into the new ballot",
    Promises,
    "value",
    'Item(NOOP, b"") if best is None else best.item',
    'Item(NOOP, b"")',
)
mutant(
    "a promise reports the chosen prefix",
    Votes,
    "report",
    "first, known, tuple(votes)",
    "first, 0, tuple(votes)",
)
mutant(
    "a replica with a trimmed log does not cover slots that it does not report",
    Promises,
    "cover",
    "promise.known < slot and",
    "",
)
mutant(
    "a majority must have promised",
    Promises,
    "cover",
    "return config.agreed(\n",
    "return bool(\n",
)
mutant(
    "a leader proposes after all reported slots",
    Promises,
    "add",
    "self.horizon = max(self.horizon, vote.slot)",
    "pass",
)
mutant(
    "a leader has all decided slots before it acts",
    Leader,
    "_become_leader",
    "applied >= promises.horizon",
    "True",
)
mutant(
    "a leader has caught up before it is elected",
    Leader,
    "_become_leader",
    "or applied < promises.known",
    "",
)

# -- choices --

mutant(
    "votes with different ballots are not added up",
    Tallies,
    "count",
    "if ballot == tally.ballot:",
    "if True:",
)
mutant(
    "one vote is not a majority",
    Config,
    "agreed",
    "len(members) // 2 + 1",
    "len(members) // 2",
)
mutant(
    "a value accepted at a lower ballot is not the chosen value",
    Learner,
    "_is_chosen",
    "return mine >= tally.ballot",
    "return mine > BOTTOM",
)
mutant(
    "a leader reports only choices made with its own ballot",
    Learner,
    "_is_chosen",
    "mine == ballot",
    "mine > BOTTOM",
)
MUTANTS.append(
    Mutant(
        "a leader that learns of another chosen value steps down",
        lambda patch: patch.setattr(Leader, "hear_chosen", lambda self, slot, item: None),
        another_value_is_chosen,
        1,  # no storm causes it; see docs/protocols/multipaxos-tests.md
    )
)
MUTANTS.append(
    Mutant(
        "requests from another group are not answered",
        lambda patch: patch.setattr(Membership, "group", 0),
        founder_loses_its_disk,
        1,
    )
)
mutant(
    "a replica that does not lead owns no proposal",
    Leader,
    "step_down",
    "self.tokens.clear()",
    "pass",
)
mutant(
    "only applied slots are sent as chosen",
    Supplier,
    "on_want",
    "min(message.last, progress.applied)",
    "message.last",
)
mutant(
    "a chosen value replaces an accepted value",
    Votes,
    "store_learned",
    "if self.values.index.get(slot) is not None and self.values.readable(slot) == item:",
    "if self.values.index.get(slot) is not None:",
)
mutant(
    "a slot is read from its last record",
    SlotIndex,
    "put",
    "self._apart[slot] = record",
    "pass",
)
mutant(
    "a log marks exactly the applied slots as chosen",
    Recovery,
    "restore",
    "progress.certain = max(progress.certain, applied)",
    "progress.certain = max(progress.certain, slot)",
)

# -- memberships --

mutant(
    "the membership in force for a slot decides it",
    Learner,
    "_is_chosen",
    "self.membership.history.of(slot)",
    "self.membership.history._configs[0]",
)
mutant(
    "slots after a membership change wait for it",
    Leader,
    "proceed",
    "if term.changing is not None:",
    "if False:",
)
mutant(
    "a membership changes by one member at a time",
    Reconfiguration,
    "_towards",
    "return config.added(member, size)",
    "return config.successor(*config.removed(change.remove).members, member, size=size)",
)
MUTANTS.append(
    Mutant(
        "a silent member is removed after its replacement has joined, not before",
        replaced(
            Reconfiguration,
            "_with_one",
            "return config.added(member)",
            "return config.added(member) if free else config.removed(next(iter(roster.silent)))",
        ),
        disk_is_lost_beside_a_silent_member,
        1,  # a disk must be lost at just that moment: storms may need more than a hundred
    )
)
mutant(
    "a surplus member is removed",
    Reconfiguration,
    "_next",
    "if len(config.members) > config.size:",
    "if False:",
)
mutant(
    "a new member is compared with the slots chosen when the Beat was sent",
    Roster,
    "chosen_at",
    "next((known for at, known in self.beats if at == stamp), applied)",
    "applied",
    newcomer_joins_under_load,
)
mutant(
    "a newcomer that has nearly caught up gets proposals",
    Roster,
    "followers",
    'self.newcomer if self.newcomer_live else NodeId("")',
    'NodeId("")',
    newcomer_has_nearly_caught_up,
)
mutant(
    "a lone leader sends no proposals to a newcomer",
    Leader,
    "_propose",
    "if others:\n        applied",
    "if True:\n        applied",
    newcomer_joins_a_lone_leader,
)
mutant(
    "a new member that falls behind gets no proposals",
    Roster,
    "_may_follow",
    "offered.lag <= self.options.ahead_slots // 2",
    "True",
    newcomer_falls_behind,
)
mutant(
    "a new member is sent nothing while the group has no free seat",
    Reconfiguration,
    "_with_one",
    'self._choose_newcomer(NodeId(""))  # the group needs no new member',
    "pass",
    newcomer_finds_a_complete_group,
)
mutant(
    "new members catch up in turn",
    Reconfiguration,
    "_next_newcomer",
    "if self.io.now < self.roster.newcomer_since + min(turn, options.replace_after):",
    "if True:",
    newcomer_never_catches_up,
)
mutant(
    "a membership change goes before waiting commands",
    Reconfiguration,
    "look",
    "term.queue.appendleft(",
    "term.queue.append(",
    newcomer_replaces_a_member_under_load,
)
mutant(
    "slots that wait for a missing slot are not all held in memory",
    Values,
    "on_disk",
    "or self._holds_much()",
    "",
    slot_is_missing,
)
mutant(
    "no member is removed before a majority of the remaining members has all slots",
    Roster,
    "have",
    "return left.agreed([*current, self.membership.self_as_member])",
    "return True",
    new_member_has_no_slots_yet,
)
mutant(
    "a member leaves only once the remaining members have the slots in flight",
    Leader,
    "_must_wait",
    "if self.roster.have(config, slot - 1):",
    "if True:",
    exact(
        test_membership_exactly.test_leader_leaves_a_group_of_two_only_once_the_other_replica_has_every_slot
    ),
)
mutant(
    "a removal that waits is withdrawn if a remaining member fails",
    Reconfiguration,
    "look",
    "term.withdraw_membership()",
    "pass",
    exact(test_membership_exactly.test_removal_that_waits_is_withdrawn_if_a_remaining_member_fails),
)
mutant(
    "a removal that waits for too long is withdrawn",
    Reconfiguration,
    "_informed",
    "return not late or roster.have(left, term.removing - 1)",
    "return True",
    exact(
        test_membership_exactly.test_commands_do_not_wait_long_for_a_member_that_does_not_catch_up
    ),
)
mutant(
    "a member stays while it may have an entry that the leader cannot read",
    Reconfiguration,
    "_may_lose",
    "self._informed(left) and (self.roster.absent(node) or not needed)",
    "self._informed(left)",
    exact(
        test_membership_exactly.test_leader_removes_no_member_that_may_have_an_entry_that_it_cannot_read
    ),
)
mutant(
    "a member with a lost disk counts as absent",
    Roster,
    "absent",
    "or self.has_new_incarnation(node)",
    "",
    exact(test_membership.test_no_member_can_be_removed_while_another_has_lost_its_disk),
)
mutant(
    "a surplus member stays if the remaining members lack a majority",
    Reconfiguration,
    "_without_one",
    "roster.viable(left) and",
    "",
    exact(test_membership.test_surplus_member_stays_while_another_member_has_lost_its_disk),
)
mutant(
    "a replica reports only slots on disk",
    Acceptor,
    "on_beat",
    "incarnation, durable = membership.incarnation, self.values.durable",
    "incarnation, durable = membership.incarnation, self.learner.progress.applied",
    disk_is_slow,
)
mutant(
    "a new member sets its suspicion timer",
    Reconfiguration,
    "reconfigured",
    "self.io.later(self.following.patience(), Silence())",
    "pass",
    newcomer_becomes_a_member_without_a_leader,
)
mutant(
    "a snapshot has the membership of its slot",
    Supplier,
    "save",
    "config = membership.history.of(slot + 1)",
    "config = membership.history.last",
)
mutant(
    "a transferred snapshot has the membership of its slot",
    Supplier,
    "_give",
    "config = self.membership.history.of(slot + 1)",
    "config = self.membership.history._configs[0]",
)

# -- incarnations --

mutant(
    "a wiped disk has another incarnation",
    Recovery,
    "_begin",
    "membership.incarnation or self._new_incarnation()",
    "membership.incarnation or 1",
)
mutant(
    "another incarnation is another member",
    Config,
    "agreed",
    "if member in voters:",
    "if member.node in [voter.node for voter in voters]:",
)
mutant(
    "a replica that may have lost a promise begins a new incarnation",
    Recovery,
    "_outlive_damage",
    "if votes.promise_uncertain:",
    "if False:",
)

# -- damage --

mutant(
    "lost votes are reported as lost",
    Votes,
    "report",
    "tuple(votes), tuple(lost))",
    "tuple(votes), ())",
)
mutant(
    "a replica that has lost a vote does not cover its slot",
    Promises,
    "cover",
    "and not within(promise.lost, slot)",
    "",
)
MUTANTS[-1] = MUTANTS[-1]._replace(detector=storm_with_fixed_options)
mutant(
    "the lost range reaches up to the highest accepted slot",
    Votes,
    "vouched",
    "(low, top if high == FAR else high)",
    "(low, low if high == FAR else high)",
)
mutant(
    "votes that may have been replaced are doubtful",
    Votes,
    "vouched",
    "self._doubt(first)",
    "pass",
)
MUTANTS[-1] = MUTANTS[-1]._replace(detector=storm_with_fixed_options)

damage_mutant(
    "a new incarnation keeps no value that may not be chosen",
    Votes,
    "begin_incarnation",
    "self._doubt(min(self._first_lost(), self.progress.known_to_be_chosen + 1))",
    "self.ballots.clear()",
)
mutant(
    "a lost incarnation change makes all earlier votes doubtful",
    Votes,
    "vouched",
    "if renewed or counted is None",
    "if counted is None",
    new_incarnation_record_is_lost,
)
mutant(
    "doubtful votes stay doubtful after another restart",
    Votes,
    "_doubt",
    "self.replaced += FORGOT",
    "pass",
    second_restart_finds_more_damage,
)
damage_mutant(
    "a lost snapshot record is detected",
    Transfer,
    "_jump",
    "self.votes.replaced += FORGOT",
    "pass",
)
mutant(
    "learned values count as replaced after a restart",
    Recovery,
    "_restore_learned",
    "votes.replaced += 1",
    "pass",
    learned_record_is_lost,
)
mutant(
    "an installed snapshot counts as a replacement after a restart",
    Recovery,
    "restore",
    "votes.replaced += FORGOT",
    "pass",
    skipped_record_is_lost,
)
mutant(
    "only the latest installed snapshot counts",
    Recovery,
    "restore",
    "max(progress.skipped, slot)",
    "slot",
    exact(test_lost_records.test_snapshot_of_fewer_slots_makes_no_skipped_vote_count),
)
damage_mutant(
    "no vote replaces a learned value",
    Votes,
    "accept",
    "slot not in learned",
    "True",
)
damage_mutant(
    "no vote fills a slot that is chosen and cannot be read",
    Votes,
    "accept",
    "if known < slot",
    "if progress.applied < slot",
)
mutant(
    "a promise reports learned values",
    Votes,
    "report",
    "self.ballots | dict.fromkeys(progress.learned, ballot)",
    "self.ballots",
    learned_value_is_promised,
)
mutant(
    "a lost slot stays lost until it is applied",
    Votes,
    "report",
    "after(progress.applied, self.lost)",
    "after(known, self.lost)",
    votes_are_lost,
)
mutant(
    "a leader does not propose in a slot that it knows to be chosen",
    Leader,
    "_next_items",
    "if self._beaten(slot, value):",
    "if False:",
    next_slot_is_already_chosen,
)
mutant(
    "a replica that is no longer alone does not treat an open vote as chosen",
    Recovery,
    "_finish_alone",
    "and membership.is_alone",
    "",
    founder_restarts_after_another_replica_joined,
)
mutant(
    "a replica that is alone applies its log before it starts",
    Recovery,
    "start",
    "whole = self._finish_alone()\n    self.learner.start()",
    "self.learner.start()\n    whole = self._finish_alone()",
    founder_restarts_with_many_undecided_slots,
)
mutant(
    "a replica that is alone starts if it has repaired its damaged log",
    Recovery,
    "_finish_alone",
    "return membership.is_alone and not after(progress.applied, votes.lost)",
    "return False",
    exact(test_restart.test_lone_replica_starts_if_it_has_fetched_the_damaged_slot_before),
)
mutant(
    "a replica that is alone does not start if it may have lost a vote",
    Recovery,
    "_finish_alone",
    "and not after(progress.applied, votes.lost)",
    "",
    lone_replica_lost_a_vote,
)
mutant(
    "a replica that is alone does not start if it may have lost its incarnation",
    Recovery,
    "_finish_alone",
    "if votes.damage and votes.promise_uncertain:",
    "if False:",
    lone_replica_lost_its_incarnation,
)
mutant(
    "a promise fits in a message",
    Votes,
    "report",
    "if bytes_left <= 0:",
    "if False:",
    votes_exceed_one_message,
)
mutant(
    "a replica that could not report all votes at once is asked again",
    Leader,
    "_prepare_again",
    "if not whole and",
    "if promise is None and",
    votes_are_reported_in_parts,
)
mutant(
    "an old checksum is not compared",
    Comparison,
    "on_digest",
    "if chain is not None:",
    "if True:",
    old_check_is_applied,
)
mutant(
    "a value is held until its newest record is on disk",
    Values,
    "on_disk",
    "and self.settled(slot)",
    "",
    value_is_replaced_before_it_is_on_disk,
)

# -- the lease --

mutant(
    "a replica that follows a leader makes no promise to another node",
    Following,
    "leased",
    "return candidate",
    "return False and candidate",
)
mutant_by(
    "a lease allows for clock drift",
    lambda patch: patch.setattr(GroupOptions, "lease", lambda self, bound: bound),
)
mutant(
    "a lease binds after a restart",
    Recovery,
    "start",
    "following.resume()",
    "following.resume(); following.release()",
)
mutant(
    "a shorter suspicion time does not shorten a lease",
    Following,
    "resume",
    "self.bound_until = self.io.now + self.bound",
    "pass",
)
mutant(
    "a shorter suspicion time is stored only when the longer lease is over",
    Following,
    "heard_leader",
    "and self.io.now >= self.bound_until",
    "",
    exact(test_shorter_suspicion.test_shorter_suspicion_time_is_stored_only_after_the_old_lease),
)
mutant(
    "a longer suspicion time is on disk before a leader relies on it",
    Acceptor,
    "on_beat",
    "after=max(votes.promised_in, self.following.bound_in)",
    "after=votes.promised_in",
    exact(test_shorter_suspicion.test_longer_suspicion_time_is_stored_before_the_replica_uses_it),
)
mutant(
    "a lease binds the last replica after a restart",
    Recovery,
    "start",
    "alone and not bound and",
    "alone and",
    last_replica_restarts,
)
mutant(
    "a lease starts when the leader sends the Beat, not when it is answered",
    Leader,
    "on_heard",
    "message.stamp + ",
    "self.io.now + ",
)
mutant(
    "a leader with an expired lease serves no reads",
    Leader,
    "leads",
    "and now < self.lease_ends()",
    "",
)
mutant(
    "a lease needs a majority",
    Leader,
    "_lease",
    "ends[len(ends) - config.majority]",
    "ends[-1]",
)
mutant(
    "an old release does not end a newer lease",
    Acceptor,
    "on_release",
    "or ballot < self.votes.promised",
    "",
    exact(test_acceptor.test_old_release_does_not_end_a_newer_lease),
)

mutant(
    "the ballot that a replica follows is on disk before it answers",
    Acceptor,
    "on_beat",
    "votes.store_promise(ballot)",
    "pass",
)
MUTANTS.append(
    Mutant(
        "a replica that does not lead sends no release",
        replaced(Leader, "resign", "if term.acting:", "if True:"),
        candidate_is_removed,
        1,  # storms may need more than a hundred
    )
)

# -- elections --

mutant(
    "each ballot without a leader is given more time",
    Following,
    "recess",
    "2.0 ** min(self.failed_ballots, 64)",
    "2.0",
    exact(test_acceptor.test_wait_after_a_promise_grows_with_each_failed_election),
)
mutant(
    "a rejected leader may make promises at once",
    Leader,
    "on_reject",
    "if self.term.elected:",
    "if self.following.leader == self.membership.me:",
    exact(test_leader.test_rejected_leader_makes_promises_to_another_candidate_at_once),
)

# -- stopping --

mutant(
    "a leader hands over before it stops",
    Retirement,
    "begin",
    "leader.resign(term, successor)",
    "pass",
    leader_retires,
)
mutant(
    "the most advanced follower leads next",
    Retirement,
    "_next",
    "max(left, key=lambda member: roster.reported.get(member, 0)).node",
    "left[0].node",
    leader_retires,
)
mutant(
    "a leader hands over to another follower if the first is down",
    Retirement,
    "lost",
    "successor = self._next()",
    "successor = None",
    successor_is_lost,
)
mutant(
    "a replica that is about to stop does not become a candidate",
    Leader,
    "stand",
    "or self.retired",
    "",
    retired_replica_gets_a_release,
)

# -- snapshots --

mutant(
    "a snapshot covers no later record",
    Supplier,
    "save",
    "else behind - 1",
    "else behind",
)
mutant(
    "records that a snapshot needs are not trimmed",
    Supplier,
    "save",
    "else lowest)",
    "else self.io.last_record + 1)",
)
mutant(
    "a snapshot is installed with its chosen entries",
    Transfer,
    "_has",
    "if slot > self.progress.applied:",
    "if False:",
)
MUTANTS.append(
    Mutant(
        "votes from before an installed snapshot are not chosen",
        replaced(Transfer, "_jump", "self.io.append(m.Skipped(last))", "pass"),
        snapshot_is_installed,
        1,  # a disk must be full at just that moment: storms may need more than two hundred
    )
)
mutant(
    "pieces from two snapshots are not mixed",
    Transfer,
    "on_piece",
    "and not taking.whole",
    "and False",
    two_snapshots_are_fetched,
)
mutant(
    "a snapshot is split into a bounded number of pieces",
    GroupOptions,
    "piece_size",
    "max(self.piece_bytes, min(ceil(state_bytes / PIECES), 1 << 16))",
    "self.piece_bytes",
    exact(test_supply_exactly.test_number_of_snapshot_pieces_is_bounded),
)
MUTANTS.append(
    Mutant(
        "a snapshot source has the suspicion time to answer",
        lambda patch: patch.setattr(Transfer, "_tries", TRIES),
        exact(test_supply_exactly.test_replica_waits_for_a_silent_source_for_the_suspicion_time),
        1,
    )
)
mutant(
    "a snapshot includes the records for deduplication",
    Ledger,
    "install",
    "self.slot, self.kept",
    "self.next = dict.fromkeys(self.next, 0)\n    self.slot, self.kept",
)

# -- snapshots of the service --


def service_mutant(rule: str, name: str, text: str, instead: str) -> None:
    plant = replaced(Service, name, text, instead)
    MUTANTS.append(Mutant(rule, plant, storm_with_sessions, SEEDS))


service_mutant(
    "a service snapshot includes the producers",
    "install",
    "self._log_usage.restore",
    "[each.producers.clear() for each in self.machine.registry.topics.values()]\n"
    "    self._log_usage.restore",
)
service_mutant(
    "a service snapshot includes the delivered offsets",
    "install",
    "self._log_usage.restore",
    "[setattr(sub, 'suspect_below', 0) for each in self.machine.registry.topics.values()"
    " for sub in each.subscriptions.values()]\n    self._log_usage.restore",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_removed_rule_is_detected(mutant: Mutant) -> None:
    assert_detected(mutant)
