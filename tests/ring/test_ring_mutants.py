"""Moves and push delivery without one of their rules are found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker.clock import Clock
from oncecast.broker.holdings import Holdings
from oncecast.broker.moving import Moving
from oncecast.broker.topic import Topic
from oncecast.lab.scenarios.ring import RING
from oncecast.lab.scenarios.scenario import run
from oncecast.ring.channel import Channel
from oncecast.ring.exporter import Exporter
from oncecast.ring.importer import Importer
from oncecast.ring.mover import Mover
from oncecast.ring.relay import Relay
from oncecast.ring.roster import Roster
from tests.broker import test_machine_moves, test_machine_state
from tests.mutants import Mutant, must_be_noticed, replaced
from tests.ring import test_fencing, test_mover, test_relay, test_roster
from tests.ring.walks import Walk

pytestmark = pytest.mark.mutants

SEEDS, STORMS = 150, 40
MUTANTS: list[Mutant] = []


def walk(seed: int) -> None:
    """A move by dice."""
    Walk(seed).go()


def storm(seed: int) -> None:
    outcome = run(RING, seed, 4)
    assert outcome.ok, outcome.violation


def fencing(seed: int) -> None:
    """A reader takes over from another one, at another process."""
    test_fencing.test_what_two_readers_are_handed_is_marked_at_the_one_that_took_over(seed)


def of(test: Callable[[], None]) -> Callable[[int], None]:
    def story(seed: int) -> None:
        test()

    story.__name__ = test.__name__
    return story


def mutant(
    rule: str, owner: Any, name: str, text: str, instead: str, story: Callable[[int], None] = walk
) -> None:
    seeds = SEEDS if story is walk else STORMS if story is storm else 1
    MUTANTS.append(Mutant(rule, replaced(owner, name, text, instead), story, seeds))


# -- what is decided --

mutant(
    "only what is all here is adopted",
    Moving,
    "_has_all",
    "return copied.index.next == index.next and copied.index.first <= index.first",
    "return True",
    of(test_mover.test_copies_with_a_hole_are_not_adopted_but_taken_anew),
)
mutant(
    "copies of another topic_id are no copies",
    Moving,
    "_has_all",
    "if copied is None or copied.id != topic.id:",
    "if copied is None:",
    of(test_mover.test_copies_of_an_earlier_life_are_not_adopted),
)
mutant(
    "what is frozen is served no more",
    Moving,
    "freeze",
    "registry.topics.pop(name)",
    "registry.topics[name]",
)
mutant(
    "what is frozen cannot be made anew",
    Holdings,
    "owns",
    "if self.frozen is not None and up_to(self.low, key, self.frozen.until):",
    "if False:",
)
mutant(
    "one part is frozen at a time",
    Moving,
    "freeze",
    "return MoveStep(holdings.frozen.move == command.move)",
    "pass",
    of(test_mover.test_a_second_freeze_is_not_decided),
)
mutant(
    "what was frozen comes back when it thaws",
    Moving,
    "thaw",
    "self._registry.topics[name] = topic",
    "pass",
    of(test_mover.test_an_abandoned_claim_is_thawed),
)
mutant(
    "what is released is another's",
    Moving,
    "release",
    "holdings.low = None if until == holdings.position else until",
    "pass",
)
mutant(
    "an import may come twice",
    Moving,
    "import_",
    "if command.offset < index.next:",
    "if False:",
    of(test_machine_moves.test_every_command_may_come_twice),
)
mutant(
    "a copy begins where the exporter's does",
    Moving,
    "adopt",
    "copied.index.drop_below(topic.index.first)",
    "pass",
)
mutant(
    "producers move, and what they have put",
    Moving,
    "adopt",
    "topic.rebuild()",
    "topic.producers.clear(); topic.rebuild()",
)
mutant(
    "cursors move",
    Moving,
    "adopt",
    "topic.rebuild()",
    "[setattr(each, 'cursor', topic.index.first) for each in topic.subscriptions.values()]"
    "; topic.subscriptions and topic.subscriptions.popitem(); topic.rebuild()",
)
mutant(
    "last_epoch go on",
    Moving,
    "adopt",
    "registry.last_epoch = max(registry.last_epoch, command.last_epoch)",
    "pass",
)
mutant(
    "last_topic_id go on",
    Moving,
    "adopt",
    "registry.last_topic_id = max(registry.last_topic_id, command.last_topic_id)",
    "pass",
)
mutant(
    "what is adopted cannot be abandoned",
    Moving,
    "_claiming",
    "and not claim.adopted else None",
    "else None",
    of(test_mover.test_what_is_adopted_is_not_abandoned),
)
mutant(
    "only what is next to the arc is taken",
    Holdings,
    "may_import",
    "return until == (self.position if self.low is None else self.low)",
    "return True",
)
mutant(
    "only what is its own is given",
    Holdings,
    "may_export",
    "return self.low is not None and up_to(self.low, until, self.position)",
    "return self.low is not None",
)

mutant(
    "one wall clock moves the time of a group by a step at most",
    Clock,
    "pass_time",
    "if not step or not self.trusted:",
    "if True:",
    storm,
)

mutant(
    "a time that was in dispute at the exporter is not believed",
    Exporter,
    "_exported",
    "(clock.trusted, registry.last_topic_id",
    "(clock.now, registry.last_topic_id",
    of(test_mover.test_a_giver_tells_its_trusted_time_and_its_last_stamp),
)
mutant(
    "a time that was in dispute at the exporter stays in dispute",
    Moving,
    "adopt",
    "if command.newest > registry.clock.now:",
    "if False:",
    of(test_machine_moves.test_disputed_time_of_a_giver_is_disputed_in_a_new_group_too),
)

# -- what leaders do --

mutant(
    "nothing is released before it is adopted",
    Importer,
    "_go_on",
    "if claim.adopted:",
    "if claim.adopted or progress.exported is not None:",
)
mutant(
    "nothing is thawed after it is adopted",
    Mover,
    "receive",
    "self.send(sender, Adopted(move))",
    "self.send(sender, Abandoned(move))",
)
mutant(
    "a claim is not dropped while it may be adopted",
    Mover,
    "receive",
    "if holdings.claim is None or holdings.claim.move != move:",
    "if holdings.claim is None or not holdings.claim.adopted:",
)
mutant(
    "nothing is adopted while something is frozen",
    Importer,
    "_go_on",
    "if holdings.frozen is None and not self._mover.in_flight(do.Freeze):",
    "if True:",
    of(test_mover.test_nothing_is_adopted_while_something_else_is_frozen),
)
mutant(
    "copies with a hole are taken anew",
    Importer,
    "_adopt",
    "self.abandon(claim)",
    "pass",
    of(test_mover.test_copies_with_a_hole_are_not_adopted_but_taken_anew),
)
mutant(
    "a group with a claim is not gone",
    Mover,
    "report",
    "holdings.retired and holdings.claim is None",
    "holdings.retired",
    of(test_mover.test_who_retires_takes_nothing_more_and_is_not_gone_before_that_is_settled),
)
mutant(
    "a group that is gone is heard of",
    Importer,
    "located",
    "elif claim.adopted:",
    "elif False:",
)
mutant(
    "who is lost sight of is looked for",
    Importer,
    "located",
    "progress.nodes = tuple(dict.fromkeys((*facts.nodes, *progress.nodes)))",
    "pass",
    of(test_mover.test_who_is_not_answered_asks_the_next_replica_and_its_home_where_they_are),
)
mutant(
    "answered calls move with their topics",
    Exporter,
    "_exported",
    "state.moved_out(holdings, answers)",
    "state.moved_out(holdings)",
    of(test_mover.test_new_owner_knows_the_calls_that_the_former_owner_answered),
)
mutant(
    "what is frozen for nobody is thawed",
    Exporter,
    "remind",
    "mover.send(self._nodes[self._turn % len(self._nodes)], StillWanted(frozen.move))",
    "pass",
    of(test_mover.test_an_abandoned_claim_is_thawed),
)
mutant(
    "what all have read is no reason to be silent",
    Exporter,
    "_pull",
    "self._mover.send(sender, Pulled(pull.move, pull.topic, pull.offset, tuple(batches)))",
    "batches and self._mover.send(sender, Pulled(pull.move, pull.topic, pull.offset, "
    "tuple(batches)))",
)

# -- push --

mutant(
    "gaps are filled",
    Relay,
    "_fill",
    "channel.add(scanned.topic_id, scanned.chunks)",
    "pass",
    storm,
)
mutant(
    "a gap is not skipped",
    Relay,
    "_serve",
    "if not chunks:\n            return",
    "if not chunks:\n            flow.next = max(flow.next, channel.gap_end(flow.next))\n"
    "            return",
    storm,
)
mutant(
    "acks are joined by their maximum",
    Relay,
    "_gather",
    "ack.upto > known.upto",
    "ack.upto < known.upto",
    of(test_relay.test_acks_are_joined_by_their_maximum_on_the_way),
)
mutant(
    "an ack that is lost is sent again",
    Relay,
    "_checked",
    "ack.upto > permit.cursor",
    "False",
    of(test_relay.test_an_ack_that_did_not_arrive_is_sent_again),
)
mutant(
    "another topic_id is not served",
    Relay,
    "_may_read",
    "or permit.topic_id != channel.topic_id",
    "",
    of(test_relay.test_a_new_life_of_a_topic_is_not_taken_for_the_old_one),
)
mutant(
    "a fenced reader is sent nothing more",
    Relay,
    "_may_read",
    "permit.last_epoch >= channel.fenced",
    "True",
    fencing,
)
mutant(
    "the owner says that it has fenced a reader",
    Topic,
    "attach",
    "self.fenced = epoch",
    "pass",
    fencing,
)
mutant(
    "an owner that was restored still says that it has fenced a reader",
    Topic,
    "rebuild",
    "self.fenced =",
    "_ =",
    of(test_machine_state.test_restored_topic_says_that_a_reader_was_fenced),
)
mutant(
    "another topic_id forgets what was here",
    Channel,
    "reaches",
    "self._chunks.clear()",
    "pass",
    of(test_relay.test_a_new_life_is_not_mixed_with_the_old_one),
)
mutant(
    "a gap is asked for once",
    Relay,
    "_ask_for_gaps",
    "if self.now < channel.asked + ANSWER_WITHIN and channel.asking:",
    "if False:",
    of(test_relay.test_a_gap_is_asked_for_once_for_all_readers),
)
mutant(
    "who is far behind gets on",
    Relay,
    "_fill",
    "channel.add(scanned.topic_id, scanned.chunks)",
    "channel.add(scanned.topic_id, scanned.chunks); channel.trim()",
    of(test_relay.test_a_reader_far_behind_gets_on_though_newer_messages_fill_the_channel),
)
mutant(
    "credit is kept",
    Relay,
    "_serve",
    "flow.next < channel.next and has_credit(flow) and",
    "flow.next < channel.next and",
    of(test_relay.test_credit_is_kept),
)


def losses_unvouched(patch: pytest.MonkeyPatch) -> None:
    """Both at once: a loss that is told without a permit would be told for ever."""
    serve = ("min(permit.first, channel.first)", "channel.first")
    may_read = ("if flow.next < channel.first and flow.next >= permit.first:", "if False:")
    replaced(Relay, "_serve", *serve)(patch)
    replaced(Relay, "_may_read", *may_read)(patch)


MUTANTS.append(
    Mutant(
        "a reader is told of a loss only if the owner still vouches for it",
        losses_unvouched,
        of(test_relay.test_reader_whose_subscription_is_gone_is_not_told_that_messages_were_lost),
        1,
    )
)
mutant(
    "a card that was dropped stays done",
    Roster,
    "_is_new",
    "dropped < card.stamp < STAMP_MAX",
    "card.stamp < STAMP_MAX",
    of(test_roster.test_a_card_that_is_not_renewed_is_dropped_and_cannot_be_brought_back),
)
mutant(
    "a card is renewed before it would be dropped",
    Roster,
    "_renew_if_due",
    "if due or says(last)",
    "if says(last)",
    storm,
)
mutant(
    "who owns all where others own something is not believed",
    Roster,
    "_keep",
    "if known is None and facts.owns_all and self._others_own(facts.group):",
    "if False:",
    of(lambda: test_roster.test_who_owns_all_is_not_believed_where_others_own_something("x")),
)
mutant(
    "a known group is heard of until it has released what it gives away",
    Roster,
    "_keep",
    "if known is None and facts.owns_all",
    "if facts.owns_all",
    of(test_roster.test_group_that_gives_away_a_part_of_all_is_known_until_it_has_released_it),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_ring_without_this_rule_is_found_out(mutant: Mutant) -> None:
    """REP-4 REP-5 REP-6 NET-6"""
    must_be_noticed(mutant)
