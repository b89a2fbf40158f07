"""Streams without one of their rules are found out."""

from __future__ import annotations

import pytest

from oncecast.streams.protocols.cache import Cache
from oncecast.streams.protocols.reading import Reader
from oncecast.streams.protocols.streams import Streams
from oncecast.streams.protocols.writing import Audience, Writer
from tests.coordination.test_toolkit_mutants import by_test
from tests.mutants import Mutant, must_be_noticed
from tests.streams import test_cache, test_flow, test_policies, test_streams
from tests.streams.test_streams import AGREED, AGREED_LAST, EVERY

pytestmark = pytest.mark.mutants


def all_have_what_one_has() -> None:
    for qos in (AGREED, AGREED_LAST):
        test_streams.test_what_one_reader_has_all_have_though_the_writer_is_gone(3, qos)


def going_on() -> None:
    test_flow.test_a_reader_that_was_suspected_wrongly_goes_on_where_it_was(EVERY, mutual=True)


MUTANTS = [
    # -- matching --
    by_test(
        test_streams.test_both_sides_hear_why_they_do_not_and_nothing_flows,
        "a mismatch is no match",
        Streams,
        "_match",
        "if less:",
        "if False:",
    ),
    by_test(
        test_policies.test_every_offer_against_every_request,
        "less durability than requested is a mismatch",
        test_policies,
        "mismatches",
        "offered.durability < requested.durability",
        "False",
    ),
    by_test(
        test_flow.test_a_writer_that_comes_back_and_offers_less_is_matched_no_longer,
        "who offers less now is let go",
        Streams,
        "_match",
        "if less:\n            self._unmatch(end, side, peer)",
        "if less:",
    ),
    by_test(
        test_flow.test_what_a_node_says_before_it_is_known_is_asked_for,
        "who is new is asked what it has opened",
        Streams,
        "observe",
        "answer=True",
        "answer=False",
    ),
    # -- legal streams --
    by_test(
        test_streams.test_best_effort_never_goes_back,
        "best effort never goes back",
        Reader,
        "_newest",
        "if data.last < source.next:",
        "if False:",
    ),
    by_test(
        test_streams.test_reliable_keep_all_gives_each_writers_every_value_in_order,
        "what is missing is asked for",
        Reader,
        "beat",
        "source.lacks_until or (0 if self.blocked else beat.last)",
        "0",
    ),
    by_test(
        test_flow.test_more_keys_than_allowed_wait_for_room,
        "what was read of a message is not read again",
        Reader,
        "_keep",
        "bisect_left(data.every_number, source.next) if data.since < source.next else 0",
        "0",
    ),
    by_test(
        test_flow.test_large_writes_of_several_keys_come_in_order_under_loss,
        "only what is next is acknowledged",
        Reader,
        "_ack",
        "Acks(self.endpoint.stream, source.life, source.next, until)",
        "Acks(self.endpoint.stream, source.life, max([source.next, *source._order]), until)",
    ),
    by_test(
        test_flow.test_a_keep_last_reader_far_behind_skips_to_what_is_kept,
        "keep-last keeps the newest",
        Cache,
        "_add",
        "samples = new[-history:], samples[-history:]",
        "samples = new[:history], samples[:history]",
    ),
    by_test(
        test_cache.test_the_last_values_of_each_key_stay,
        "the oldest of the key goes",
        Cache,
        "_add",
        "slots.popleft()",
        "slots.pop()",
    ),
    by_test(
        test_flow.test_a_keep_last_reader_far_behind_skips_to_what_is_kept,
        "who asks for what was replaced hears that it is gone",
        Writer,
        "_messages",
        "if since <= last:",
        "if False:",
    ),
    by_test(
        test_streams.test_what_has_outlived_its_lifespan_is_not_read,
        "what has outlived its lifespan goes",
        Cache,
        "expire",
        "until < now",
        "False",
    ),
    # -- limits --
    by_test(
        test_streams.test_reliable_keep_all_gives_each_writers_every_value_in_order,
        "a writer that keeps all keeps what was not acknowledged",
        Writer,
        "_settle",
        "each.next for each",
        "each.sent for each",
    ),
    by_test(
        test_streams.test_a_reader_whose_cache_is_full_goes_on_when_values_are_taken,
        "a full reader does not drop what must be read",
        Reader,
        "_accept",
        "source.next = data.every_number[-left]",
        "source.next = data.last + 1",
    ),
    by_test(
        test_flow.test_no_more_than_a_window_is_under_way_to_a_reader,
        "no more than a window is under way",
        Writer,
        "_write",
        "audience.sent == first and audience.listens",
        "audience.sent == first",
    ),
    by_test(
        test_flow.test_no_more_than_a_window_is_under_way_to_a_reader,
        "an acknowledgement opens the window",
        Audience,
        "acked",
        "self.next = max(self.next, number)",
        "self.next = self.next",
    ),
    by_test(
        test_flow.test_a_reader_that_comes_back_too_late_hears_what_it_has_missed,
        "what is lost is told",
        Reader,
        "_accept",
        "self._lost(writer, source.next - before - kept)",
        "pass",
    ),
    by_test(
        going_on,
        "values are kept for a reader that is only suspected",
        Writer,
        "unmatch",
        "and suspected",
        "and False",
    ),
    by_test(
        test_flow.test_nobody_waits_for_a_reader_that_is_suspected,
        "nobody waits for a reader that is suspected",
        Writer,
        "write",
        "self._away.clear()",
    ),
    # -- agreement --
    by_test(
        test_flow.test_readers_agree_though_the_writer_suspected_one_of_them_before_it_crashed,
        "what a suspected reader may lack is not stable",
        Writer,
        "_beat",
        "self.safe",
        "self.stable",
    ),
    by_test(
        all_have_what_one_has,
        "what one reader has is relayed",
        Reader,
        "known",
        "self._relay(sender, known, source)",
    ),
    by_test(
        all_have_what_one_has,
        "readers compare what they have of a suspected writer",
        Reader,
        "tell_known",
        "self._tell(other, writer, source.life, source.next, answer=True)",
    ),
    by_test(
        all_have_what_one_has,
        "what is not known to be stable is kept",
        Reader,
        "_keep",
        "each.number >= source.stable",
        "False",
    ),
    by_test(
        test_streams.test_in_the_absence_of_failures_each_value_is_sent_once_to_each_reader,
        "nothing is relayed while nobody is suspected",
        Reader,
        "_accept",
        "source.next = data.last + 1",
        "source.next = data.last + 1\n        "
        "[self._streams.send(other, data) for other in self._streams.peers]",
    ),
    by_test(
        test_flow.test_readers_that_have_agreed_are_quiet,
        "readers that have agreed are quiet",
        Reader,
        "tell_known",
        "source.others.get(other) not in (source.next, NOT_MINE)",
        "True",
    ),
    by_test(
        test_flow.test_a_persistent_reader_is_sent_nothing_and_one_that_requests_less_is,
        "what a topic holds is not sent as well",
        Audience,
        "__init__",
        "self.next = self.sent = OF_THE_TOPIC",
    ),
    by_test(
        test_streams.test_a_volatile_reader_that_comes_late_gets_what_comes_then,
        "a volatile reader gets nothing of the past",
        Writer,
        "match",
        "self.cache.first if late else self.next",
        "1",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_streams_without_this_rule_are_found_out(mutant: Mutant) -> None:
    """DDS-1 DDS-2 DDS-3"""
    must_be_noticed(mutant)
