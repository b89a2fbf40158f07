"""Check that removing any rule about moves or push delivery makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker.clock import Clock
from oncecast.broker.holdings import Holdings
from oncecast.broker.moving import Moving
from oncecast.broker.timekeeping import Timekeeper
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
from tests.mutants import Mutant, assert_detected, both, replaced
from tests.ring import test_fencing, test_mover, test_relay, test_roster
from tests.ring.walks import Walk

pytestmark = pytest.mark.mutants

SEEDS, STORMS = 150, 40
MUTANTS: list[Mutant] = []


def walk(seed: int) -> None:
    """Run a random move."""
    Walk(seed).go()


def storm(seed: int) -> None:
    outcome = run(RING, seed, 4)
    assert outcome.ok, outcome.violation


def fencing(seed: int) -> None:
    """Let a reader at another process take over from the first reader."""
    test_fencing.test_new_reader_gets_the_fenced_reader_messages_marked_as_redelivered(seed)


def of(test: Callable[[], None]) -> Callable[[int], None]:
    def detector(seed: int) -> None:
        test()

    detector.__name__ = test.__name__
    return detector


def mutant(
    rule: str,
    owner: Any,
    name: str,
    text: str,
    instead: str,
    detector: Callable[[int], None] = walk,
) -> None:
    seeds = SEEDS if detector is walk else STORMS if detector is storm else 1
    MUTANTS.append(Mutant(rule, replaced(owner, name, text, instead), detector, seeds))


# -- decisions --

mutant(
    "only a complete part is adopted",
    Moving,
    "_has_all",
    "return copied.index.next == index.next and copied.index.first <= index.first",
    "return True",
    of(test_mover.test_copies_with_a_gap_are_discarded_and_copied_again),
)
mutant(
    "copies with another topic id do not count",
    Moving,
    "_has_all",
    "if copied is None or copied.id != topic.id:",
    "if copied is None:",
    of(test_mover.test_copies_with_another_topic_id_are_not_adopted),
)
mutant(
    "a frozen part is not served",
    Moving,
    "freeze",
    "registry.topics.pop(name)",
    "registry.topics[name]",
)
mutant(
    "a frozen topic cannot be created again",
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
    of(test_mover.test_second_freeze_is_refused),
)
mutant(
    "a thawed part is served again",
    Moving,
    "thaw",
    "self._registry.topics[name] = topic",
    "pass",
    of(test_mover.test_abandoned_claim_thaws_the_part),
)
mutant(
    "a released part is no longer owned",
    Moving,
    "release",
    "holdings.low = None if until == holdings.position else until",
    "pass",
)
mutant(
    "an import is idempotent",
    Moving,
    "import_",
    "if command.offset < index.next:",
    "if False:",
    of(test_machine_moves.test_every_move_command_is_idempotent),
)
mutant(
    "a copy begins at the first offset of the exporter",
    Moving,
    "_adopt_topic",
    "copied.index.drop_below(topic.index.first)",
    "pass",
)
mutant(
    "producers move with their sequences",
    Moving,
    "_adopt_topic",
    "topic.rebuild()",
    "topic.producers.clear(); topic.rebuild()",
)
mutant(
    "cursors move with their subscriptions",
    Moving,
    "_adopt_topic",
    "topic.rebuild()",
    "[setattr(each, 'cursor', topic.index.first) for each in topic.subscriptions.values()]"
    "; topic.subscriptions and topic.subscriptions.popitem(); topic.rebuild()",
)
mutant(
    "epochs continue after a move",
    Moving,
    "adopt",
    "registry.last_epoch = max(registry.last_epoch, command.last_epoch)",
    "pass",
)
mutant(
    "topic ids continue after a move",
    Moving,
    "adopt",
    "registry.last_topic_id = max(registry.last_topic_id, command.last_topic_id)",
    "pass",
)
mutant(
    "an adopted part cannot be abandoned",
    Moving,
    "_claiming",
    "and not claim.adopted else None",
    "else None",
    of(test_mover.test_adopted_part_is_not_abandoned),
)
mutant(
    "only an adjacent part is imported",
    Holdings,
    "may_import",
    "return until == (self.position if self.low is None else self.low)",
    "return True",
    of(test_machine_moves.test_only_an_owned_and_adjacent_part_can_move),  # movers also check this
)
mutant(
    "only an owned part is exported",
    Holdings,
    "may_export",
    "return self.low is not None and up_to(self.low, until, self.position)",
    "return self.low is not None",
)

MUTANTS.append(
    Mutant(
        "one wall clock advances the time of a group by at most one step",
        both(
            replaced(Clock, "pass_time", "if not step or not self.trusted:", "if True:"),
            replaced(Timekeeper, "stamp", "self._agreed(wall, expected)", "wall"),
        ),
        storm,
        STORMS,
    )
)

mutant(
    "a disputed exporter time is not trusted",
    Exporter,
    "_exported",
    "(clock.trusted, registry.last_topic_id",
    "(clock.now, registry.last_topic_id",
    of(test_mover.test_exporter_sends_its_trusted_time_and_its_last_timestamp),
)
mutant(
    "a disputed exporter time stays disputed",
    Moving,
    "adopt",
    "if command.newest > registry.clock.now:",
    "if False:",
    of(test_machine_moves.test_disputed_exporter_time_stays_disputed_in_a_new_group),
)

# -- leaders --

mutant(
    "no part is released before it is adopted",
    Importer,
    "_go_on",
    "if claim.adopted:",
    "if claim.adopted or progress.exported is not None:",
)
mutant(
    "no part is thawed after it is adopted",
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
    "a part with too much metadata stays frozen until the importer has abandoned it",
    Exporter,
    "_tell",
    "self._mover.send(importer, ExportRefused(frozen.move))",
    "self._mover.execute_once(do.Thaw(frozen.move)); "
    "self._mover.send(importer, ExportRefused(frozen.move))",
)
mutant(
    "no part is adopted while another part is frozen",
    Importer,
    "_go_on",
    "if holdings.frozen is None and not self._mover.in_flight(do.Freeze):",
    "if True:",
    of(test_mover.test_no_part_is_adopted_while_another_part_is_frozen),
)
mutant(
    "copies with a gap are copied again",
    Importer,
    "_adopt",
    "self.abandon(claim)",
    "pass",
    of(test_mover.test_copies_with_a_gap_are_discarded_and_copied_again),
)
mutant(
    "a group with a claim is not reported as retired",
    Mover,
    "report",
    "holdings.retired and holdings.claim is None",
    "holdings.retired",
    of(test_mover.test_retiring_group_abandons_its_claim_before_it_disappears),
)
mutant(
    "a move ends when the other group is gone",
    Importer,
    "located",
    "elif claim.adopted:",
    "elif False:",
)
mutant(
    "an unreachable group is looked up",
    Importer,
    "located",
    "progress.nodes = tuple(dict.fromkeys((*facts.nodes, *progress.nodes)))",
    "pass",
    of(test_mover.test_unanswered_importer_asks_the_next_replica_and_the_directory),
)
mutant(
    "answered calls move with their topics",
    Exporter,
    "_exported",
    "state.moved_out(holdings, answers, registry.access)",
    "state.moved_out(holdings, (), registry.access)",
    of(test_mover.test_new_owner_inherits_answered_calls),
)
mutant(
    "an abandoned part is thawed",
    Exporter,
    "remind",
    "mover.send(self._nodes[self._turn % len(self._nodes)], StillWanted(frozen.move))",
    "pass",
    of(test_mover.test_abandoned_claim_thaws_the_part),
)
mutant(
    "a pull of acknowledged messages is answered",
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
    "the highest ack is kept",
    Relay,
    "_gather",
    "ack.upto > known.upto",
    "ack.upto < known.upto",
    of(test_relay.test_highest_ack_per_subscription_is_sent_to_the_owner),
)
mutant(
    "a lost ack is sent again",
    Relay,
    "_checked",
    "ack.upto > permit.cursor",
    "False",
    of(test_relay.test_lost_ack_is_sent_again),
)
mutant(
    "another topic id is not served",
    Relay,
    "_may_read",
    "or permit.topic_id != channel.topic_id",
    "",
    of(test_relay.test_reader_of_a_recreated_topic_needs_a_new_permit),
)
mutant(
    "a fenced reader gets no more messages",
    Relay,
    "_may_read",
    "permit.last_epoch >= channel.fenced",
    "True",
    fencing,
)
mutant(
    "the owner reports a fenced reader",
    Topic,
    "attach",
    "self.fenced = epoch",
    "pass",
    fencing,
)
mutant(
    "a restored owner reports a fenced reader",
    Topic,
    "rebuild",
    "self.fenced =",
    "_ =",
    of(test_machine_state.test_restored_topic_knows_the_last_fencing_epoch),
)
mutant(
    "another topic id clears the channel",
    Channel,
    "reaches",
    "self._chunks.clear()",
    "pass",
    of(test_relay.test_messages_in_a_recreated_topic_are_not_mixed_with_old_ones),
)
mutant(
    "a gap is requested once",
    Relay,
    "_ask_for_gaps",
    "if self.now < channel.asked + ANSWER_WITHIN and channel.asking:",
    "if False:",
    of(test_relay.test_gap_is_requested_once_for_all_readers),
)
mutant(
    "a slow reader advances",
    Relay,
    "_fill",
    "channel.add(scanned.topic_id, scanned.chunks)",
    "channel.add(scanned.topic_id, scanned.chunks); channel.trim()",
    of(test_relay.test_slow_reader_advances_even_if_newer_messages_fill_the_channel),
)
mutant(
    "deliveries stay within the credit",
    Relay,
    "_serve",
    "flow.next < channel.next and has_credit(flow) and",
    "flow.next < channel.next and",
    of(test_relay.test_deliveries_stay_within_the_reader_credit),
)


def losses_unvouched(patch: pytest.MonkeyPatch) -> None:
    """Remove both rules: a loss reported without a permit would be repeated forever."""
    serve = ("min(permit.first, channel.first)", "channel.first")
    may_read = ("if flow.next < channel.first and flow.next >= permit.first:", "if False:")
    replaced(Relay, "_serve", *serve)(patch)
    replaced(Relay, "_may_read", *may_read)(patch)


MUTANTS.append(
    Mutant(
        "a reader learns of a loss only with a permit from the owner",
        losses_unvouched,
        of(test_relay.test_reader_without_a_subscription_is_not_notified_of_lost_messages),
        1,
    )
)
mutant(
    "a dropped card stays dropped",
    Roster,
    "_is_new",
    "dropped < card.stamp < STAMP_MAX",
    "card.stamp < STAMP_MAX",
    of(test_roster.test_dropped_card_is_not_accepted_again_for_thirty_seconds),
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
    "a group that claims all of a shared ring is ignored",
    Roster,
    "_keep",
    "if known is None and facts.owns_all and self._others_own(facts.group):",
    "if False:",
    of(lambda: test_roster.test_group_that_claims_all_of_a_shared_ring_is_ignored("x")),
)
mutant(
    "a known group is kept until it has released its export",
    Roster,
    "_keep",
    "if known is None and facts.owns_all",
    "if facts.owns_all",
    of(test_roster.test_group_that_owned_the_whole_ring_is_kept_during_its_export),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_ring_mutant_is_detected(mutant: Mutant) -> None:
    """REP-4 REP-5 REP-6 NET-6"""
    assert_detected(mutant)
