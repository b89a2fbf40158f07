"""A put is appended once and in order, even if commands are repeated, lost, late or split."""

from __future__ import annotations

import msgspec

from oncecast.broker.extent import Extent
from oncecast.broker.producer import DIRECTORIES_KEPT, RUNS_MAX
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import Already, Appended, Opened, ProducerClosed, TopicDeleted
from tests.broker.machine_pair import Pair
from tests.broker.machine_steps import ALL, Steps


def test_offsets_are_consecutive_from_0() -> None:
    """SVC-2"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    assert steps.put(epoch, 0, 3) == Appended(0, 3, kept=True)
    assert steps.put(epoch, 3, 2) == Appended(3, 2, kept=True)
    assert steps.machine.bounds("t") == (0, 5)


def test_repeated_put_is_appended_once_and_gets_the_same_offset() -> None:
    """SVC-2: the ack was lost."""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0, 3)
    steps.put(epoch, 3, 2)
    assert steps.put(epoch, 0, 3) == Already(0, 3)
    assert steps.put(epoch, 3, 2) == Already(3, 2)
    assert steps.machine.bounds("t") == (0, 5)


def test_put_is_deduplicated_regardless_of_its_age() -> None:
    """SVC-2: a lower sequence is always a repetition."""
    steps = Steps()
    steps.subscribe()
    mine, other = steps.open(), steps.open(producer="other")
    for number in range(3 * RUNS_MAX):
        steps.put(mine, number)
        steps.put(other, number, producer="other")
    assert steps.put(mine, 0) == Already(-1, 1)  # its offset is no longer kept
    assert steps.put(mine, 3 * RUNS_MAX - 1) == Already(6 * RUNS_MAX - 2, 1)


def test_identical_puts_are_stored_as_separate_messages() -> None:
    """SVC-2"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    assert steps.put(epoch, 0) == Appended(0, 1, kept=True)
    assert steps.put(epoch, 1) == Appended(1, 1, kept=True)


def test_gap_error_names_the_missing_sequence_and_appends_nothing() -> None:
    """SVC-2"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0, 2)
    assert steps.put(epoch, 5) == errors.Gap(expected=2)
    assert steps.machine.bounds("t") == (0, 2)


def test_only_the_missing_part_of_a_batch_is_appended() -> None:
    """SVC-2: a restarted publisher packs its outbox into other batches."""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0, 3)
    first = steps.slot
    assert steps.put(epoch, 1, 5) == Appended(3, 3, kept=True)
    second = steps.slot
    assert steps.machine.fetch("t", 0, ALL, ALL) == (
        Extent(first, 0, 3, 0),
        Extent(second, 2, 3, 3),
    )
    assert steps.machine.fetch("t", 4, 1, ALL) == (Extent(second, 3, 1, 4),)


def test_repeated_put_of_noncontiguous_messages_returns_no_offset() -> None:
    """SVC-2"""
    steps = Steps()
    steps.subscribe()
    mine, other = steps.open(), steps.open(producer="other")
    steps.put(mine, 0)
    steps.put(other, 0, producer="other")
    steps.put(mine, 1)
    assert steps.put(mine, 0, 2) == Already(-1, 2)


def test_newer_incarnation_fences_the_older_incarnation() -> None:
    """SVC-8"""
    steps = Steps()
    steps.subscribe()
    old = steps.open(incarnation="old")
    steps.put(old, 0)
    opened = steps.apply(do.OpenProducer("t", "p", "new", 0))
    assert isinstance(opened, Opened)
    assert opened.epoch > old
    assert opened.next_sequence == 1
    assert steps.put(old, 1) == errors.Fenced(opened.epoch)
    assert steps.put(opened.epoch, 1) == Appended(1, 1, kept=True)


def test_repeated_open_gets_the_same_answer() -> None:
    """SVC-8: the reply was lost."""
    steps = Steps()
    opened = steps.apply(do.OpenProducer("t", "p", "inc-1", 0))
    assert steps.apply(do.OpenProducer("t", "p", "inc-1", 0)) == opened


def test_late_open_from_a_dead_process_changes_nothing() -> None:
    """SVC-8: the open names an epoch that is no longer current."""
    steps = Steps()
    steps.subscribe()
    first = steps.apply(do.OpenProducer("t", "p", "first", 0, expected=0))
    assert isinstance(first, Opened)
    living = steps.apply(do.OpenProducer("t", "p", "living", 0, expected=first.epoch))
    assert isinstance(living, Opened)
    before = steps.machine.checksum()
    for late in (0, first.epoch, living.epoch - 1, living.epoch + 1):
        dead = do.OpenProducer("t", "p", "dead", 0, directory_id="dead", expected=late)
        assert steps.apply(dead) == errors.Fenced(living.epoch)
    steps.machine.registry.last_slot -= 4  # the last slot counts commands
    assert steps.machine.checksum() == before
    assert steps.put(living.epoch, 0) == Appended(0, 1, kept=True)


def test_repeated_open_is_answered_even_with_an_old_epoch() -> None:
    """SVC-8: the reply was lost."""
    steps = Steps()
    open_ = do.OpenProducer("t", "p", "inc-1", 0, expected=0)
    opened = steps.apply(open_)
    assert isinstance(opened, Opened)
    assert steps.apply(open_) == opened


def test_opening_a_deleted_record_is_fenced_and_does_not_create_a_topic() -> None:
    """SVC-8"""
    steps = Steps()
    assert steps.apply(do.OpenProducer("t", "p", "inc-1", 0, expected=7)) == errors.Fenced(0)
    assert steps.machine.registry.topics == {}
    assert isinstance(steps.apply(do.OpenProducer("t", "p", "inc-1", 0, expected=0)), Opened)


def test_every_state_directory_under_a_name_is_kept() -> None:
    """SVC-2"""
    pair = Pair(msgspec.structs.replace(LIMITS, directories_max=20))

    def opened(number: int) -> Opened:
        directory_id = f"directory {number}"
        answer = pair.apply(
            do.OpenProducer("t", "p", f"{directory_id}.{pair.slot}", 0, directory_id=directory_id)
        )
        assert isinstance(answer, Opened)
        return answer

    for number in [*range(15), *range(15)]:
        producer = opened(number)
        put = do.Put("t", "p", producer.epoch, producer.next_sequence, 2, 100, 0, b"")
        assert isinstance(pair.apply(put), Appended)
        pair.snapshot()
    for number in range(15):
        assert opened(number).mine == (30 + 2 * number, 32 + 2 * number)


def test_state_directory_above_the_limit_is_refused() -> None:
    """SVC-2 SVC-7: if a directory's record were dropped, its messages could be stored twice."""
    pair = Pair(msgspec.structs.replace(LIMITS, directories_max=3))

    def opened(directory_id: str) -> done.Result:
        return pair.apply(
            do.OpenProducer("t", "p", f"{directory_id}.{pair.slot}", 0, directory_id=directory_id)
        )

    for sequence, directory_id in enumerate("abcd"):
        answer = opened(directory_id)
        assert isinstance(answer, Opened)
        pair.apply(do.Put("t", "p", answer.epoch, sequence, 1, 100, 0, b""))
    assert opened("e") == errors.TooMany("state directories under one producer name", 3)
    assert isinstance(pair.apply(do.Put("t", "p", 4, 4, 1, 100, 0, b"")), Appended)
    assert isinstance(opened(""), Opened)  # a client without a directory has no range
    for directory_id in "abcd":
        assert isinstance(opened(directory_id), Opened)


def test_each_state_directory_under_one_name_gets_its_own_range() -> None:
    """SVC-2"""
    steps = Steps()

    def opened(directory_id: str) -> Opened:
        answer = steps.apply(
            do.OpenProducer("t", "p", f"inc of {directory_id}", 0, directory_id=directory_id)
        )
        assert isinstance(answer, Opened)
        return answer

    steps.put(opened("ours").epoch, 0, 6)
    assert opened("theirs").mine == (6, 6)
    theirs = opened("theirs")
    assert theirs.mine == (6, 6)
    assert opened("ours").mine == (0, 6)  # this directory was opened without a put
    steps.put(opened("ours").epoch, 6)
    assert opened("ours").mine == (0, 7)
    steps.put(opened("theirs").epoch, 7, 3)
    ours = opened("ours")
    assert (ours.next_sequence, ours.mine) == (10, (0, 7))
    assert opened("ours") == ours  # the reply was lost
    steps.put(ours.epoch, 10)
    assert opened("ours").mine == (10, 11)


def test_older_log_keeps_only_a_few_state_directories() -> None:
    """SVC-9"""
    steps = Steps()
    for number in range(DIRECTORIES_KEPT + 2):
        opened = steps.apply(
            do.OpenProducer("t", "p", "inc-1", 0, directory_id=f"directory {number}")
        )
        assert isinstance(opened, Opened)
        steps.put(opened.epoch, number)
    assert len(steps.machine.registry.topics["t"].producers["p"].earlier) == DIRECTORIES_KEPT


def test_producer_must_open_before_it_puts() -> None:
    steps = Steps()
    assert steps.put(1, 0) == errors.Unopened("t", "p")
    steps.open(producer="other")
    assert steps.put(1, 0) == errors.Unopened("t", "p")


def test_open_without_create_does_not_create_a_topic() -> None:
    """SVC-5"""
    steps = Steps()
    command = do.OpenProducer("t", "p", "inc-1", 0, create=False)
    assert steps.apply(command) == errors.NoSuchTopic("t")
    assert "t" not in steps.machine.registry.topics


def test_put_without_subscriptions_gets_an_offset_but_is_not_kept() -> None:
    """SVC-5"""
    steps = Steps()
    epoch = steps.open()
    assert steps.put(epoch, 0, 2) == Appended(0, 2, kept=False)
    steps.subscribe()
    assert steps.put(epoch, 2) == Appended(2, 1, kept=True)
    assert steps.kept() == [2]


def test_late_put_to_a_deleted_topic_is_refused_by_the_recreated_topic() -> None:
    """SVC-2: a late put must not count as the first put to the new topic."""
    steps = Steps()
    steps.subscribe()
    old = steps.open()
    late = do.Put("t", "p", old, 0, 1, 100, 0, b"")
    assert steps.apply(do.DeleteTopic("t", 0)) == TopicDeleted(already=False)
    steps.subscribe()
    new = steps.open()
    assert steps.apply(late) == errors.Fenced(new)
    assert steps.put(new, 0) == Appended(0, 1, kept=True)


def test_closed_producer_is_dropped_and_its_late_puts_are_refused() -> None:
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    assert steps.apply(do.CloseProducer("t", "p", epoch + 1)) == errors.Fenced(epoch)
    assert steps.apply(do.CloseProducer("t", "p", epoch)) == ProducerClosed(already=False)
    assert steps.apply(do.CloseProducer("t", "p", epoch)) == ProducerClosed(already=True)
    assert steps.put(epoch, 1) == errors.Unopened("t", "p")
    again = steps.open()
    assert steps.put(epoch, 0) == errors.Fenced(again)


def test_invalid_batches_are_refused() -> None:
    """SVC-7"""
    steps = Steps(Limits(batch_messages_max=10, batch_bytes_max=1000))
    steps.subscribe()
    epoch = steps.open()
    assert isinstance(steps.put(epoch, 0, 0), errors.InvalidArgument)
    assert isinstance(steps.put(epoch, -5, 8), errors.InvalidArgument)
    assert isinstance(steps.put(epoch, 0, 1, size=-1), errors.InvalidArgument)
    assert steps.put(epoch, 0, 11) == errors.TooLarge("messages", 10)
    assert steps.put(epoch, 0, 1, size=1001) == errors.TooLarge("bytes", 1000)
    assert steps.machine.bounds("t") == (0, 0)


def test_refused_put_does_not_change_the_state() -> None:
    """SVC-2: the log can be truncated after a refused put."""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    before = b"".join(steps.machine.state())
    steps.put(epoch, 7)
    steps.put(epoch + 1, 0)
    steps.machine.registry.last_slot -= 2
    steps.slot -= 2
    assert b"".join(steps.machine.state()) == before


def test_machine_state_contains_no_payloads() -> None:
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    state = b"".join(steps.machine.state())
    assert b"bytes" not in state
