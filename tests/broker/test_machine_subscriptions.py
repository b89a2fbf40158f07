"""A subscription misses no message, and only its current epoch advances its cursor."""

from __future__ import annotations

from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.limits import Limits
from oncecast.wire.results import (
    Acked,
    AcksDone,
    Attached,
    Detached,
    Sought,
    Subscribed,
    TopicCreated,
    Unsubscribed,
)
from oncecast.wire.retention import Policy
from tests.broker.machine_steps import Steps


def subscribed(messages: int = 10) -> Steps:
    """Return a topic with a subscription and one-message batches, one per microsecond."""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    for number in range(messages):
        steps.now += 1
        steps.put(epoch, number)
    return steps


def test_subscribe_creates_the_topic() -> None:
    """SVC-5"""
    steps = Steps()
    assert steps.subscribe() == Subscribed(0, topic_id=1, already=False)
    assert "t" in steps.machine.registry.topics


def test_repeated_subscribe_changes_nothing() -> None:
    """SVC-6"""
    steps = subscribed()
    steps.ack(steps.attach().epoch, 4)
    assert steps.subscribe(start=do.FromNew()) == Subscribed(4, topic_id=1, already=True)
    assert steps.attach().cursor == 4


def test_subscription_starts_at_the_requested_position() -> None:
    steps = subscribed()
    assert steps.subscribe("new") == Subscribed(10, 1, already=False)
    assert steps.subscribe("earliest", do.FromEarliest()) == Subscribed(0, 1, already=False)
    assert steps.subscribe("offset", do.FromOffset(7)) == Subscribed(7, 1, already=False)
    assert steps.subscribe("time", do.FromTime(1004)) == Subscribed(3, 1, already=False)
    assert steps.subscribe("late", do.FromTime(9999)) == Subscribed(10, 1, already=False)
    assert steps.subscribe("beyond", do.FromOffset(99)) == Subscribed(10, 1, already=False)
    assert steps.subscribe("negative", do.FromOffset(-9)) == Subscribed(0, 1, already=False)


def test_start_before_the_first_kept_message_begins_at_that_message() -> None:
    steps = subscribed()
    steps.ack(steps.attach().epoch, 6)
    assert steps.subscribe("offset", do.FromOffset(2)) == Subscribed(6, 1, already=False)
    assert steps.subscribe("time", do.FromTime(0)) == Subscribed(6, 1, already=False)


def test_unsubscribe_drops_unread_messages_and_its_duplicate_gets_already() -> None:
    """SVC-6"""
    steps = subscribed()
    steps.subscribe("other")
    assert steps.apply(do.Unsubscribe("t", "s", 0)) == Unsubscribed(already=False)
    assert steps.kept() == []
    assert steps.apply(do.Unsubscribe("t", "s", 0)) == Unsubscribed(already=True)
    assert steps.apply(do.Unsubscribe("nowhere", "s", 0)) == Unsubscribed(already=True)


def test_message_is_dropped_when_the_last_subscription_acknowledges_it() -> None:
    """SVC-9"""
    steps = subscribed(3)
    steps.subscribe("slow", do.FromEarliest())
    fast, slow = steps.attach(), steps.attach("slow")
    steps.ack(fast.epoch, 3)
    assert steps.kept() == [0, 1, 2]
    steps.ack(slow.epoch, 2, "slow")
    assert steps.kept() == [2]


def test_ack_inside_a_batch_drops_messages_and_keeps_the_slot() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    steps.put(steps.open(), 0, 5)
    slot = steps.slot
    epoch = steps.attach().epoch
    steps.ack(epoch, 4)
    assert steps.kept() == [4]
    assert steps.machine.needed() == slot
    steps.ack(epoch, 5)
    assert steps.machine.needed() == steps.slot + 1


def test_acks_never_move_the_cursor_back() -> None:
    """SVC-3"""
    steps = subscribed()
    epoch = steps.attach().epoch
    assert steps.ack(epoch, 5) == Acked(5)
    assert steps.ack(epoch, 3) == Acked(5)
    assert steps.ack(epoch, -3) == Acked(5)


def test_ack_beyond_the_end_is_refused() -> None:
    """SVC-3"""
    steps = subscribed(3)
    assert steps.ack(steps.attach().epoch, 4) == errors.OutOfRange(next=3)


def test_newer_incarnation_fences_acks_from_the_older_one() -> None:
    """SVC-8"""
    steps = subscribed()
    old = steps.attach(incarnation="old")
    new = steps.attach(incarnation="new")
    assert new.epoch > old.epoch
    assert steps.ack(old.epoch, 5) == errors.Fenced(new.epoch)
    assert steps.apply(do.Detach("t", "s", old.epoch, 9)) == errors.Fenced(new.epoch)
    assert steps.attach(incarnation="new").cursor == 0


def test_repeated_attach_gets_the_same_answer() -> None:
    """SVC-11: the reader continues at its cursor, and no message is marked."""
    steps = subscribed()
    first = steps.attach()
    assert first == Attached(first.epoch, 0, 0, 10, suspect_below=0, topic_id=1)
    assert steps.attach() == first


def test_late_attach_from_a_dead_process_changes_nothing() -> None:
    """SVC-8: the attach names an epoch that is no longer current."""
    steps = subscribed()
    first = steps.apply(do.Attach("t", "s", "first", expected=0))
    assert isinstance(first, Attached)
    living = steps.apply(do.Attach("t", "s", "living", expected=first.epoch))
    assert isinstance(living, Attached)
    for late in (0, first.epoch):
        dead = do.Attach("t", "s", "dead", expected=late)
        assert steps.apply(dead) == errors.Fenced(living.epoch)
    assert steps.apply(do.Attach("t", "s", "living", expected=0)) == living
    assert steps.ack(living.epoch, 4) == Acked(4)


def test_attach_to_a_subscription_without_a_reader_expects_epoch_0() -> None:
    """SVC-8"""
    steps = subscribed()
    epoch = steps.attach().epoch
    steps.apply(do.Detach("t", "s", epoch, 0))
    assert steps.apply(do.Attach("t", "s", "next", expected=epoch)) == errors.Fenced(0)
    assert isinstance(steps.apply(do.Attach("t", "s", "next", expected=0)), Attached)


def test_unacknowledged_messages_count_as_redelivered_after_a_reader_crash() -> None:
    """SVC-11: the crashed reader may have received any of them."""
    steps = subscribed()
    steps.ack(steps.attach(incarnation="crashed").epoch, 3)
    attached = steps.attach(incarnation="next")
    assert (attached.cursor, attached.suspect_below) == (3, 10)


def test_detach_records_the_delivered_messages() -> None:
    """SVC-11"""
    steps = subscribed()
    epoch = steps.attach(incarnation="orderly").epoch
    assert steps.apply(do.Detach("t", "s", epoch, 4)) == Detached(4)
    assert steps.apply(do.Detach("t", "s", epoch, 4)) == Detached(4)
    assert steps.attach(incarnation="next").suspect_below == 4


def test_orderly_detach_keeps_earlier_redelivery_marks() -> None:
    """SVC-11"""
    steps = subscribed()
    steps.attach(incarnation="crashed")
    epoch = steps.attach(incarnation="orderly").epoch
    assert steps.apply(do.Detach("t", "s", epoch, 2)) == Detached(10)


def test_detach_cannot_report_more_messages_than_were_put() -> None:
    steps = subscribed()
    epoch = steps.attach().epoch
    assert steps.apply(do.Detach("t", "s", epoch, 1 << 70)) == Detached(10)


def test_seek_moves_the_cursor_to_a_kept_message() -> None:
    steps = subscribed()
    steps.subscribe("holds", do.FromOffset(2))
    epoch = steps.attach().epoch
    steps.ack(epoch, 9)
    seek_token = steps.apply(do.Seek("t", "s", do.FromOffset(0), 0, "token", epoch))
    assert seek_token == Sought(epoch + 1, 2, already=False)
    by_time = steps.apply(do.Seek("t", "s", do.FromTime(1006), 0, "another"))
    assert by_time == Sought(epoch + 2, 5, already=False)


def test_ack_in_flight_cannot_undo_a_seek() -> None:
    """SVC-3: the reader learns that it was repositioned, not fenced."""
    steps = subscribed()
    steps.subscribe("holds", do.FromEarliest())
    epoch = steps.attach().epoch
    steps.apply(do.Seek("t", "s", do.FromEarliest(), 0, "token"))
    assert steps.ack(epoch, 9) == errors.Repositioned(epoch + 1, 0)
    assert steps.attach().epoch == epoch + 1  # the same reader continues
    assert steps.ack(epoch + 1, 9) == Acked(9)


def test_repeated_seek_is_not_executed_again() -> None:
    """SVC-3: the reply was lost, and the reader has advanced since."""
    steps = subscribed()
    steps.subscribe("holds", do.FromEarliest())
    seek = do.Seek("t", "s", do.FromOffset(2), 0, "token")
    seek_token = steps.apply(seek)
    assert isinstance(seek_token, Sought)
    steps.ack(seek_token.epoch, 8)
    assert steps.apply(seek) == Sought(seek_token.epoch, 2, already=True)
    assert steps.attach().cursor == 8


def test_fenced_reader_cannot_seek() -> None:
    """SVC-8"""
    steps = subscribed()
    old, new = steps.attach(incarnation="old"), steps.attach(incarnation="new")
    seek = do.Seek("t", "s", do.FromNew(), 0, "token", old.epoch)
    assert steps.apply(seek) == errors.Fenced(new.epoch)


def test_repeated_seek_of_a_fenced_reader_does_not_return_the_epoch_of_its_successor() -> None:
    """SVC-8: the reply to the seek was lost, and another reader has attached since.

    Found by the scenario "paxos" with 5 nodes and seed 3006066.
    """
    steps = subscribed()
    old = steps.attach(incarnation="old")
    seek = do.Seek("t", "s", do.FromOffset(2), 0, "token", old.epoch)
    moved = steps.apply(seek)
    assert moved == Sought(old.epoch + 1, 2, already=False)
    assert steps.apply(seek) == Sought(old.epoch + 1, 2, already=True)
    new = steps.attach(incarnation="new")
    assert steps.apply(seek) == errors.Fenced(new.epoch)
    assert steps.ack(new.epoch, 5) == Acked(5)


def test_seek_forward_drops_skipped_messages() -> None:
    """SVC-9"""
    steps = subscribed()
    steps.apply(do.Seek("t", "s", do.FromOffset(8), 0, "token"))
    assert steps.kept() == [8, 9]


def test_acks_for_several_subscriptions_share_a_command() -> None:
    steps = subscribed()
    steps.subscribe("other", do.FromEarliest())
    mine, other = steps.attach(), steps.attach("other")
    acks = (
        do.Ack("t", "s", mine.epoch, 4),
        do.Ack("t", "other", other.epoch, 3),
        do.Ack("t", "nobody", 1, 3),
        do.Ack("nowhere", "s", 1, 3),
    )
    assert steps.apply(do.Acks(acks, 0)) == AcksDone(
        (Acked(4), Acked(3), errors.NotSubscribed("t", "nobody"), errors.NoSuchTopic("nowhere"))
    )
    assert steps.kept() == list(range(3, 10))


def test_ack_for_an_earlier_subscription_with_the_same_name_is_fenced() -> None:
    """SVC-3"""
    steps = subscribed()
    old = steps.attach()
    steps.apply(do.Unsubscribe("t", "s", 0))
    steps.subscribe(start=do.FromEarliest())
    result = steps.ack(old.epoch, 5)
    assert isinstance(result, errors.Fenced)


def test_commands_for_a_missing_subscription_are_refused() -> None:
    """SVC-7"""
    steps = subscribed()
    for command in (
        do.Attach("t", "nobody", "inc-1"),
        do.Ack("t", "nobody", 1, 1),
        do.Detach("t", "nobody", 1, 1),
        do.Seek("t", "nobody", do.FromNew(), 0, "token"),
    ):
        assert steps.apply(command) == errors.NotSubscribed("t", "nobody")


def test_hard_limit_drops_unread_messages_and_attach_shows_the_loss() -> None:
    """SVC-9: the reader gets an error."""
    steps = Steps()
    policy = Policy(bytes_max=300, drop_unread=True)
    assert steps.create(policy=policy) == TopicCreated(1, already=False)
    steps.subscribe()
    epoch = steps.open()
    for number in range(10):
        steps.put(epoch, number)
    attached = steps.attach()
    assert (attached.cursor, attached.first, attached.next) == (0, 7, 10)
    assert steps.machine.fetch("t", attached.cursor, 1, 1)[0].offset == 7


def test_low_water_mark_follows_the_slowest_of_many_subscriptions() -> None:
    """SVC-9"""
    steps = Steps()
    epochs = {}
    for number in range(50):
        steps.subscribe(f"s{number}")
        epochs[number] = steps.attach(f"s{number}").epoch
    steps.put(steps.open(), 0, 50)
    for number in range(50):
        steps.ack(epochs[number], 50 - number, f"s{number}")
        expected = 0 if number < 49 else 1
        assert steps.machine.bounds("t")[0] == expected


def test_subscriptions_per_topic_are_limited() -> None:
    """SVC-7"""
    steps = Steps(Limits(subscriptions_max=1))
    steps.subscribe("one")
    assert steps.subscribe("two") == errors.TooMany("subscriptions of the topic", 1)
    assert steps.subscribe("one") == Subscribed(0, 1, already=True)
