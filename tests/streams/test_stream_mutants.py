"""Check that removing any stream rule makes a test fail."""

from __future__ import annotations

import pytest

from oncecast.streams.protocols.cache import Cache
from oncecast.streams.protocols.reading import Reader
from oncecast.streams.protocols.streams import Streams
from oncecast.streams.protocols.writing import MatchedReader, Writer
from tests.coordination.test_toolkit_mutants import by_test
from tests.mutants import Mutant, assert_detected
from tests.streams import test_cache, test_flow, test_policies, test_streams
from tests.streams.test_streams import AGREED, AGREED_LAST, EVERY

pytestmark = pytest.mark.mutants


def all_readers_agree() -> None:
    for qos in (AGREED, AGREED_LAST):
        test_streams.test_readers_share_the_values_that_any_of_them_has_after_the_writer_crashes(
            3, qos
        )


def suspected_reader_continues() -> None:
    test_flow.test_wrongly_suspected_reader_continues_where_it_stopped(EVERY, mutual=True)


MUTANTS = [
    # -- matching --
    by_test(
        test_streams.test_mismatch_is_reported_on_both_sides_and_no_values_are_sent,
        "a mismatch prevents a match",
        Streams,
        "_match",
        "if less:",
        "if False:",
    ),
    by_test(
        test_policies.test_mismatch_names_exactly_the_qualities_that_are_too_low,
        "less durability than requested is a mismatch",
        test_policies,
        "mismatches",
        "offered.durability < requested.durability",
        "False",
    ),
    by_test(
        test_flow.test_writer_is_unmatched_if_it_returns_with_a_lower_offer,
        "a writer with a lower offer is unmatched",
        Streams,
        "_match",
        "if less:\n            self._unmatch(local, side, peer)",
        "if less:",
    ),
    by_test(
        test_flow.test_new_neighbor_is_asked_for_its_endpoints,
        "a new neighbor is asked for its endpoints",
        Streams,
        "observe",
        "answer=True",
        "answer=False",
    ),
    # -- reliability --
    by_test(
        test_streams.test_best_effort_values_never_arrive_out_of_order,
        "older best-effort values are dropped",
        Reader,
        "_newest",
        "if data.last < source.next:",
        "if False:",
    ),
    by_test(
        test_streams.test_reliable_keep_all_reader_gets_every_value_from_each_writer_in_order,
        "a reader asks for missing values",
        Reader,
        "beat",
        "source.gap_end or (0 if self.blocked else beat.last)",
        "0",
    ),
    by_test(
        test_flow.test_value_with_a_new_key_waits_while_the_reader_has_too_many_keys,
        "values of a message that were read are not read again",
        Reader,
        "_keep",
        "bisect_left(data.every_number, source.next) if data.since < source.next else 0",
        "0",
    ),
    by_test(
        test_flow.test_large_writes_with_several_keys_arrive_in_order_despite_losses,
        "a reader acknowledges only values without gaps",
        Reader,
        "_ack",
        "Acks(self.endpoint.stream, source.incarnation, source.next, until)",
        "Acks(self.endpoint.stream, source.incarnation, max([source.next, *source._order]), until)",
    ),
    by_test(
        test_flow.test_keep_last_reader_far_behind_skips_to_the_kept_values,
        "keep-last keeps the newest values",
        Cache,
        "_add",
        "samples = new[-history:], samples[-history:]",
        "samples = new[:history], samples[:history]",
    ),
    by_test(
        test_cache.test_full_history_keeps_the_last_values_per_key,
        "the oldest value of the key is dropped",
        Cache,
        "_add",
        "slots.popleft()",
        "slots.pop()",
    ),
    by_test(
        test_flow.test_keep_last_reader_far_behind_skips_to_the_kept_values,
        "a writer reports replaced values as gone",
        Writer,
        "_messages",
        "if since <= last:",
        "if False:",
    ),
    by_test(
        test_streams.test_expired_values_are_not_read,
        "expired values are removed",
        Cache,
        "expire",
        "until < now",
        "False",
    ),
    # -- limits --
    by_test(
        test_streams.test_reliable_keep_all_reader_gets_every_value_from_each_writer_in_order,
        "a keep-all writer keeps unacknowledged values",
        Writer,
        "_update_stable",
        "each.next for each",
        "each.sent for each",
    ),
    by_test(
        test_streams.test_full_reader_continues_when_values_are_taken,
        "a full reliable reader drops no values",
        Reader,
        "_accept",
        "source.next = data.every_number[-left]",
        "source.next = data.last + 1",
    ),
    by_test(
        test_flow.test_values_in_flight_to_a_reader_are_limited_to_a_window,
        "values in flight are limited to a window",
        Writer,
        "_write",
        "matched.sent == first and matched.has_window",
        "matched.sent == first",
    ),
    by_test(
        test_flow.test_values_in_flight_to_a_reader_are_limited_to_a_window,
        "an acknowledgement opens the window",
        MatchedReader,
        "acked",
        "self.next = max(self.next, number)",
        "self.next = self.next",
    ),
    by_test(
        test_flow.test_reader_that_returns_too_late_learns_how_many_values_it_missed,
        "lost values are reported",
        Reader,
        "_accept",
        "self._report_lost(writer, source.next - before - kept)",
        "pass",
    ),
    by_test(
        suspected_reader_continues,
        "values are kept for a suspected reader",
        Writer,
        "unmatch",
        "and suspected",
        "and False",
    ),
    by_test(
        test_flow.test_writer_does_not_wait_for_a_suspected_reader,
        "a writer does not wait for a suspected reader",
        Writer,
        "write",
        "self._suspected_readers.clear()",
    ),
    # -- agreement --
    by_test(
        test_flow.test_readers_agree_after_the_crash_of_a_writer_that_suspected_one_of_them,
        "values that a suspected reader may lack are not stable",
        Writer,
        "_beat",
        "self.safe",
        "self.stable",
    ),
    by_test(
        all_readers_agree,
        "a reader relays its values",
        Reader,
        "known",
        "self._relay(sender, known, source)",
    ),
    by_test(
        all_readers_agree,
        "readers compare their values of a suspected writer",
        Reader,
        "send_known_to",
        "self._send_known(other, writer, source.incarnation, source.next, answer=True)",
    ),
    by_test(
        all_readers_agree,
        "values that may not be stable are kept",
        Reader,
        "_keep",
        "each.number >= source.stable",
        "False",
    ),
    by_test(
        test_streams.test_each_value_is_sent_to_each_reader_once_if_nothing_fails,
        "no values are relayed without a suspicion",
        Reader,
        "_accept",
        "source.next = data.last + 1",
        "source.next = data.last + 1\n        "
        "[self._streams.send(other, data) for other in self._streams.peers]",
    ),
    by_test(
        test_flow.test_readers_stop_sending_once_they_agree,
        "readers stop sending once they agree",
        Reader,
        "send_known_to",
        "source.others.get(other) not in (source.next, NOT_READING)",
        "True",
    ),
    by_test(
        test_flow.test_writer_sends_values_to_all_but_persistent_readers,
        "a persistent reader is sent no values",
        MatchedReader,
        "__init__",
        "self.next = self.sent = FROM_TOPIC",
    ),
    by_test(
        test_streams.test_late_volatile_reader_gets_only_later_values,
        "a volatile reader gets no earlier values",
        Writer,
        "match",
        "self.cache.first if late else self.next",
        "1",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant_is_detected(mutant: Mutant) -> None:
    """DDS-1 DDS-2 DDS-3"""
    assert_detected(mutant)
