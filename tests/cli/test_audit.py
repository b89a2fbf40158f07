"""CLI-2: the audit of `oncecast load` finds every kind of fault."""

from __future__ import annotations

from oncecast.cli.load.audit import Reading, id_of, value_of
from oncecast.wire.message import Message


def message(
    offset: int, sequence: int | None = None, *, redelivered: bool = False, producer: str = "p"
) -> Message:
    sequence = offset if sequence is None else sequence
    value = value_of(producer, sequence, 20)
    return Message("t", offset, None, value, {}, 0, producer, sequence, redelivered)


def faults(*messages: Message, total: int) -> tuple[int, int, int]:
    reading = Reading()
    for each in messages:
        reading.deliver(each)
    reading.end(total)
    return reading.lost, reading.duplicated, reading.out_of_order


def test_messages_delivered_once_and_in_order_have_no_faults() -> None:
    assert faults(message(0), message(1), message(2), total=3) == (0, 0, 0)


def test_two_producers_can_share_a_topic() -> None:
    messages = (message(0), message(1, 0, producer="q"), message(2, 1), message(3, 1, producer="q"))
    assert faults(*messages, total=4) == (0, 0, 0)


def test_missing_message_in_the_middle_counts_as_lost() -> None:
    assert faults(message(0), message(2, 2), total=3)[0] == 1


def test_missing_messages_at_the_end_count_as_lost() -> None:
    assert faults(message(0), total=3) == (2, 0, 0)


def test_message_delivered_twice_counts_as_duplicated() -> None:
    assert faults(message(0), message(0), total=1)[1] == 1


def test_unrequested_redelivery_is_a_duplicate_even_if_marked() -> None:
    assert faults(message(0), message(0, redelivered=True), total=1)[1] == 1


def test_message_stored_twice_is_detected() -> None:
    assert faults(message(0), message(1, 0), total=1) == (0, 1, 1)


def test_swapped_messages_from_a_producer_count_as_out_of_order() -> None:
    assert faults(message(0, 1), message(1, 0), total=2)[2] == 1


def test_value_that_no_producer_wrote_counts_as_out_of_order() -> None:
    strange = Message("t", 0, None, b"\xff what", {}, 0, "p", 0, False)
    assert faults(strange, total=1)[2] == 1


def test_requested_redelivery_must_be_marked() -> None:
    for redelivered, duplicated in ((True, 0), (False, 1)):
        reading = Reading()
        reading.deliver(message(0))
        reading.deliver(message(1))
        reading.rewind(1)
        reading.deliver(message(1, redelivered=redelivered))
        assert (reading.lost, reading.duplicated, reading.redelivered) == (0, duplicated, 1)


def test_message_that_is_not_redelivered_on_request_counts_as_lost() -> None:
    reading = Reading()
    reading.deliver(message(0))
    reading.rewind(0)
    reading.deliver(message(1))
    assert reading.lost == 1


def test_value_has_its_producer_and_the_requested_size() -> None:
    assert id_of(value_of("a.b", 17, 100)) == ("a.b", 17)
    assert len(value_of("a.b", 17, 100)) == 100


def test_new_subscription_skips_older_messages_and_expects_newer_messages() -> None:
    """CLI-2, SVC-6"""
    reading = Reading()
    assert reading.deliver(message(0))
    assert reading.resubscribe(3) == 2
    assert reading.deliver(message(3))
    reading.deliver(message(5))
    reading.end(6)
    assert (reading.forgone, reading.lost, reading.duplicated) == (2, 1, 0)


def test_new_subscription_must_not_redeliver_messages() -> None:
    reading = Reading()
    reading.deliver(message(0))
    reading.deliver(message(1))
    assert reading.resubscribe(1) == 0  # the node has kept the old cursor
    reading.deliver(message(1))
    assert reading.duplicated == 1


def test_skipped_messages_are_counted_once_and_not_lost() -> None:
    reading = Reading()
    assert reading.resubscribe(3) == 3
    assert reading.resubscribe(5) == 2
    reading.end(5)
    assert (reading.forgone, reading.lost, reading.duplicated) == (5, 0, 0)
