"""CLI-2: the load's audit notices every kind of broken promise."""

from __future__ import annotations

from oncecast.cli.load.audit import Reading, id_of, value_of
from oncecast.wire.batch import Message


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


def test_each_once_and_in_order_is_no_fault() -> None:
    assert faults(message(0), message(1), message(2), total=3) == (0, 0, 0)


def test_two_producers_share_a_topic() -> None:
    others = (message(0), message(1, 0, producer="q"), message(2, 1), message(3, 1, producer="q"))
    assert faults(*others, total=4) == (0, 0, 0)


def test_a_message_in_the_middle_that_never_came_is_lost() -> None:
    assert faults(message(0), message(2, 2), total=3)[0] == 1


def test_messages_at_the_end_that_never_came_are_lost() -> None:
    assert faults(message(0), total=3) == (2, 0, 0)


def test_a_message_that_came_twice_is_duplicated() -> None:
    assert faults(message(0), message(0), total=1)[1] == 1


def test_a_second_time_that_nobody_asked_for_is_duplicated_even_if_marked() -> None:
    assert faults(message(0), message(0, redelivered=True), total=1)[1] == 1


def test_a_message_that_was_stored_twice_is_noticed() -> None:
    assert faults(message(0), message(1, 0), total=1) == (0, 1, 1)


def test_two_messages_of_a_producer_that_changed_places_are_out_of_order() -> None:
    assert faults(message(0, 1), message(1, 0), total=2)[2] == 1


def test_a_value_that_is_not_what_was_put_is_noticed() -> None:
    strange = Message("t", 0, None, b"\xff what", {}, 0, "p", 0, False)
    assert faults(strange, total=1)[2] == 1


def test_what_was_asked_for_again_must_come_again_and_marked() -> None:
    for redelivered, duplicated in ((True, 0), (False, 1)):
        reading = Reading()
        reading.deliver(message(0))
        reading.deliver(message(1))
        reading.back(1)
        reading.deliver(message(1, redelivered=redelivered))
        assert (reading.lost, reading.duplicated, reading.redelivered) == (0, duplicated, 1)


def test_what_was_asked_for_again_and_did_not_come_is_lost() -> None:
    reading = Reading()
    reading.deliver(message(0))
    reading.back(0)
    reading.deliver(message(1))
    assert reading.lost == 1


def test_a_value_names_its_producer_and_is_as_long_as_wanted() -> None:
    assert id_of(value_of("a.b", 17, 100)) == ("a.b", 17)
    assert len(value_of("a.b", 17, 100)) == 100


def test_who_subscribes_anew_forgoes_what_is_before_and_is_owed_the_rest() -> None:
    """CLI-2, SVC-6"""
    reading = Reading()
    assert reading.deliver(message(0))
    assert reading.anew(3) == 2
    assert reading.deliver(message(3))
    reading.deliver(message(5))
    reading.end(6)
    assert (reading.forgone, reading.lost, reading.duplicated) == (2, 1, 0)


def test_what_was_read_before_a_new_subscription_must_not_come_again() -> None:
    reading = Reading()
    reading.deliver(message(0))
    reading.deliver(message(1))
    assert reading.anew(1) == 0  # a node that has kept the old place
    reading.deliver(message(1))
    assert reading.duplicated == 1


def test_what_is_forgone_is_neither_lost_nor_forgone_twice() -> None:
    reading = Reading()
    assert reading.anew(3) == 3
    assert reading.anew(5) == 2
    reading.end(5)
    assert (reading.forgone, reading.lost, reading.duplicated) == (5, 0, 0)
