"""The state machine handles partitioned topics and their consumer groups (PART-1, PART-2)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import moves, state
from oncecast.broker.clock import Retiming
from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import partitions as part
from oncecast.wire.limits import Limits
from oncecast.wire.results import (
    Appended,
    Attached,
    Enlisted,
    GroupAdded,
    GroupLeft,
    GroupRemoved,
    PartitionsSet,
    PolicySet,
    Subscribed,
    TopicCreated,
    TopicDeleted,
)
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.sharing import Shared
from oncecast.wire.transactions import EndTransaction, Output
from tests.broker.machine_steps import Steps
from tests.broker.test_machine_moves import YES, Move

S = 1_000_000
LIFETIME = 10 * S
KEEP = Policy(keep_all=True)


class Divided(Steps):
    """A machine with topic `t`, which has 4 partitions, and its consumer group `g`."""

    def __init__(self, count: int = 4, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        super().__init__(limits)
        self.divide(count)
        self.add_group()

    def divide(self, count: int, policy: Policy = DEFAULT) -> Any:
        for number in range(count):
            name = part.partition_topic("t", number)
            self.apply(do.CreateTopic(name, self.now, policy, partition_of="t"))
        return self.apply(do.CreateTopic("t", self.now, policy, partitions=count))

    def add_group(self) -> Any:
        return self.apply(part.AddGroup("t", "g", self.now))

    def grow(self, count: int, expected: int = -1) -> Any:
        found = self.machine.registry.topics["t"].descriptor
        epoch = found.epoch if found is not None and expected < 0 else expected
        return self.apply(part.SetPartitions("t", self.now, count, epoch))

    def enlist(self, member: str, *released: part.Term, lifetime: int = LIFETIME) -> Enlisted:
        found = self.apply(part.Enlist("t", "g", member, lifetime, self.now, released))
        assert isinstance(found, Enlisted)
        return found

    def leave(self, member: str) -> Any:
        return self.apply(part.LeaveGroup("t", "g", member, self.now))

    def restart(self) -> None:
        """Continue with a machine that is restored from a snapshot."""
        before = self.machine.checksum()
        self.machine = Machine.restore(list(self.machine.state()))
        assert self.machine.checksum() == before


def held(found: Enlisted) -> list[int]:
    return [partition for partition, _ in found.held]


# Create, grow and delete


def test_topic_with_partitions_is_created_once() -> None:
    """PART-1"""
    steps = Steps()
    create = do.CreateTopic("t", 0, partitions=4)
    assert steps.apply(create) == TopicCreated(1, already=False)
    assert steps.apply(create) == TopicCreated(1, already=True)
    partition = do.CreateTopic("t#3", 0, partition_of="t")
    assert steps.apply(partition) == TopicCreated(2, already=False)
    assert steps.apply(partition) == TopicCreated(2, already=True)


@pytest.mark.parametrize(
    "other",
    [
        do.CreateTopic("t", 0),
        do.CreateTopic("t", 0, partitions=3),
        do.CreateTopic("t", 0, KEEP, partitions=4),
        do.CreateTopic("t#1", 0),
        do.CreateTopic("t#1", 0, KEEP, partition_of="t"),
    ],
)
def test_topic_of_another_kind_already_exists(other: do.CreateTopic) -> None:
    """PART-1"""
    assert Divided().apply(other) == errors.TopicExists(other.topic)


def test_plain_topic_with_the_name_of_a_partition_stays_plain() -> None:
    """PART-1: existing topics may contain the mark."""
    steps = Steps()
    steps.create("t#0")
    steps.create("t")
    assert isinstance(steps.put(steps.open("t#0"), 0, topic="t#0"), Appended)
    assert steps.machine.registry.base_of("t#0") == ""
    assert steps.apply(do.CreateTopic("t#0", 0, partition_of="t")) == errors.TopicExists("t#0")
    assert steps.apply(do.CreateTopic("t", 0, partitions=2)) == errors.TopicExists("t")
    assert steps.apply(do.DeleteTopic("t#0", 0, partition_of="t")) == TopicDeleted(already=True)
    assert steps.apply(do.DeleteTopic("t#0", 0)) == TopicDeleted(already=False)


@pytest.mark.parametrize("name", ["t", "t#", "t#x", "t#-1", "t#01", "t#1000", "u#1", "t##1", "t#²"])
def test_partition_needs_the_name_of_its_topic_and_a_number(name: str) -> None:
    found = Steps().apply(do.CreateTopic(name, 0, partition_of="t"))
    assert isinstance(found, errors.InvalidArgument)
    assert not part.is_partition(name, "t")


@pytest.mark.parametrize("number", [0, 9, 10, 999])
def test_partition_names_are_recognized(number: int) -> None:
    assert part.is_partition(part.partition_topic("a#0", number), "a#0")


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (do.CreateTopic("t", 0, partitions=1001), errors.TooMany("partitions of the topic", 1000)),
        (do.CreateTopic("x" * 252, 0, partitions=1), errors.InvalidTopic()),
        (do.CreateTopic("x" * 251, 0, partitions=1000), TopicCreated(1, already=False)),
    ],
)
def test_partitions_are_limited(command: do.CreateTopic, refusal: Any) -> None:
    assert Steps().apply(command) == refusal


@pytest.mark.parametrize("count", [-1, -1000])
def test_negative_number_of_partitions_is_refused(count: int) -> None:
    found = Steps().apply(do.CreateTopic("t", 0, partitions=count))
    assert found == errors.InvalidArgument(
        f"the topic would have {count} partitions; request at least 1"
    )


def test_partitions_grow_and_never_shrink() -> None:
    """PART-1"""
    steps = Divided()
    assert steps.grow(4) == PartitionsSet(4, already=True)
    assert steps.grow(6) == PartitionsSet(6, already=False)
    assert isinstance(steps.grow(5), errors.InvalidArgument)
    assert steps.grow(1001) == errors.TooMany("partitions of the topic", 1000)
    assert steps.apply(part.SetPartitions("u", 0, 2)) == errors.NoSuchTopic("u")
    steps.create("u")
    assert isinstance(steps.apply(part.SetPartitions("u", 0, 2)), errors.InvalidArgument)


def test_growth_waits_until_all_groups_are_subscribed_to_the_new_partitions() -> None:
    """PART-1: otherwise a group could miss the first messages of a new partition."""
    steps = Divided()
    descriptor = steps.machine.registry.topics["t"].descriptor
    assert descriptor is not None
    before = descriptor.epoch
    assert steps.apply(part.AddGroup("t", "h", 0)) == GroupAdded(4, already=False)
    assert steps.apply(part.AddGroup("t", "h", 0)) == GroupAdded(4, already=True)
    assert steps.grow(5, expected=before) == errors.Fenced(descriptor.epoch)
    assert steps.grow(5, expected=descriptor.epoch) == PartitionsSet(5, already=False)


def test_topic_is_closed_before_it_is_deleted() -> None:
    """PART-1: a client that finds the topic closed can finish the deletion."""
    steps = Divided()
    assert steps.apply(do.DeleteTopic("t", 0)) == errors.Partitioned("t", 4)
    assert steps.apply(do.DeleteTopic("t", 0, partition_of="t")) == errors.Partitioned("t", 4)
    assert steps.grow(0) == PartitionsSet(4, already=False)
    assert steps.grow(0) == PartitionsSet(4, already=True)
    gone = errors.NoSuchTopic("t")
    assert steps.apply(do.Subscribe("t", "s", do.FromNew(), 0)) == gone
    assert steps.grow(5) == gone
    assert steps.apply(part.Enlist("t", "g", "ann", LIFETIME, 0)) == gone
    assert steps.apply(part.AddGroup("t", "h", 0)) == gone
    assert steps.apply(do.CreateTopic("t", 0, partitions=4)) == errors.TopicExists("t")
    for number in range(4):
        delete = do.DeleteTopic(f"t#{number}", 0, partition_of="t")
        assert steps.apply(delete) == TopicDeleted(already=False)
        assert steps.apply(delete) == TopicDeleted(already=True)
    assert steps.apply(do.DeleteTopic("t", 0)) == errors.Partitioned("t", 4)
    assert steps.apply(do.DeleteTopic("t", 0, partition_of="t")) == TopicDeleted(already=False)
    assert not steps.machine.registry.topics
    assert not steps.machine.registry.divided
    assert steps.create() == TopicCreated(6, already=False)


def test_partition_is_deleted_only_with_its_topic() -> None:
    steps = Divided()
    found = steps.apply(do.DeleteTopic("t#0", 0))
    assert found == errors.InvalidArgument("topic 't#0' is a partition of 't'; delete 't' instead")


def test_policy_of_the_descriptor_can_change() -> None:
    assert Divided().apply(do.SetPolicy("t", 0, KEEP)) == PolicySet(already=False)


@pytest.mark.parametrize(
    "command",
    [
        do.OpenProducer("t", "p", "i", 0),
        do.Put("t", "p", 1, 0, 1, 1, 0, b""),
        do.Stage("s", 1, "p", "t", 1, 1, 0, b""),
        do.Subscribe("t", "s", do.FromNew(), 0),
        do.SubscribeShared("t", "s", do.FromNew(), 0),
        do.Unsubscribe("t", "s", 0),
        do.Attach("t", "s", "i"),
        do.Detach("t", "s", 1, 0),
        do.Seek("t", "s", do.FromNew(), 0, "k"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_topic_with_partitions_has_no_messages_of_its_own(command: do.Command) -> None:
    """PART-1: the refusal tells the client how many partitions there are."""
    steps = Divided()
    steps.now = 5000
    assert steps.apply(command) == errors.Partitioned("t", 4)


def test_refused_command_passes_the_time() -> None:
    steps = Divided()
    steps.apply(do.OpenProducer("t", "p", "i", 7000))
    assert steps.machine.registry.clock.now == 7000


def test_staged_and_transacted_messages_go_to_a_partition() -> None:
    """PART-1"""
    steps = Steps()
    steps.stage(1, "a")
    steps.apply(do.CreateTopic("t", 0, partitions=2))
    assert steps.publish(1, "a") == errors.Partitioned("t", 2)
    opened: Any = steps.apply(do.OpenSource("src", "i", "t", 0))
    end = EndTransaction(
        "src", "t", opened.epoch, 0, 0, 0, outputs=(Output("t", 1, 100, b"bytes"),)
    )
    assert steps.apply(end) == errors.Partitioned("t", 2)


def test_dead_letters_need_a_topic_without_partitions() -> None:
    steps = Divided()
    settings = Shared(dead_letters="t")
    found = steps.apply(do.SubscribeShared("u", "s", do.FromNew(), 0, settings))
    assert isinstance(found, errors.InvalidArgument)


def test_reader_of_a_deleted_partition_does_not_recreate_it() -> None:
    steps = Steps()
    subscribe = do.Subscribe("t#0", "g", do.FromNew(), 0, create=False)
    assert steps.apply(subscribe) == errors.NoSuchTopic("t#0")
    steps.create("t#0")
    assert steps.apply(subscribe) == Subscribed(0, 1, already=False)


# Consumer groups


def test_only_member_gets_all_partitions() -> None:
    """PART-2"""
    found = Divided().enlist("ann")
    assert (found.partitions, held(found), found.release) == (4, [0, 1, 2, 3], ())
    assert not found.waiting


def test_moved_partitions_are_released_before_they_are_taken() -> None:
    """PART-2: all other partitions keep their member and its term."""
    steps = Divided()
    before = steps.enlist("ann")
    joined = steps.enlist("bob")
    assert (held(joined), joined.waiting) == ([], True)
    told = steps.enlist("ann")
    assert told.held == before.held[:2]
    assert told.release == before.held[2:]
    released = steps.enlist("ann", told.release[0])
    assert released.release == told.release[1:]
    taken = steps.enlist("bob")
    assert (held(taken), taken.waiting) == ([2], True)
    assert taken.held[0][1] > before.held[2][1]
    steps.enlist("ann", told.release[1])
    whole = steps.enlist("bob")
    assert (held(whole), whole.waiting) == ([2, 3], False)
    assert whole.held[0] == taken.held[0]


def test_late_release_of_an_earlier_term_changes_nothing() -> None:
    """PART-2"""
    steps = Divided()
    first = steps.enlist("ann").held[3]
    steps.enlist("bob")
    steps.enlist("ann", first)
    steps.leave("bob")
    again = steps.enlist("ann")
    assert held(again) == [0, 1, 2, 3]
    assert steps.enlist("ann", first, (9, 1), (-1, 1)) == again
    assert steps.enlist("cleo", again.held[0]).held == ()
    assert held(steps.enlist("ann")) == [0, 1]


def test_partitions_of_a_member_that_leaves_are_free_at_once() -> None:
    """PART-2"""
    steps = Divided()
    steps.enlist("ann")
    steps.enlist("bob")
    assert steps.leave("ann") == GroupLeft(already=False)
    assert steps.leave("ann") == GroupLeft(already=True)
    assert held(steps.enlist("bob")) == [0, 1, 2, 3]


def test_partitions_of_a_dead_member_are_free_when_its_time_ends() -> None:
    """PART-2: the trusted time of the group decides."""
    steps = Divided()
    steps.enlist("ann")
    steps.enlist("bob")
    steps.now += LIFETIME - 1
    assert held(steps.enlist("bob")) == []
    steps.now += 1
    assert held(steps.enlist("bob")) == [0, 1, 2, 3]


def test_enlisting_again_extends_the_time() -> None:
    """PART-2"""
    steps = Divided()
    mine = steps.enlist("ann")
    steps.now += LIFETIME - 1
    assert steps.enlist("ann") == mine
    steps.enlist("bob")
    steps.now += LIFETIME - 1
    steps.enlist("bob")
    assert steps.enlist("ann", lifetime=2 * LIFETIME).held == mine.held[:2]
    steps.now += 2 * LIFETIME - 1
    assert steps.enlist("ann").held[:2] == mine.held[:2]


def test_member_that_returns_late_gets_new_terms() -> None:
    """PART-2: its readers attach again, so what it did in between is fenced."""
    steps = Divided(1)
    before = steps.enlist("ann")
    steps.now += LIFETIME
    after = steps.enlist("ann")
    assert held(after) == [0]
    assert after.held[0][1] > before.held[0][1]


def test_new_partitions_are_assigned_without_moving_others() -> None:
    """PART-1 PART-2"""
    steps = Divided(2)
    ann, bob = steps.enlist("ann"), steps.enlist("bob")
    steps.enlist("ann", *steps.enlist("ann").release)
    ann, bob = steps.enlist("ann"), steps.enlist("bob")
    assert (held(ann), held(bob)) == ([0], [1])
    steps.grow(4)
    group = steps.machine.registry.divided["t"].descriptor
    assert group is not None
    assert [each.holder for each in group.groups["g"].assignments] == ["ann", "bob", "ann", "bob"]
    assert steps.enlist("ann").held[0] == ann.held[0]
    assert held(steps.enlist("ann")) == [0, 2]
    assert steps.enlist("bob").held[0] == bob.held[0]


def test_group_and_member_must_exist_and_have_valid_names() -> None:
    steps = Divided()
    assert steps.apply(part.AddGroup("t", "", 0)) == errors.InvalidName("subscription")
    unknown = part.Enlist("t", "x", "ann", LIFETIME, 0)
    assert steps.apply(unknown) == errors.NotSubscribed("t", "x")
    assert steps.apply(part.Enlist("t", "g", "", LIFETIME, 0)) == errors.InvalidName("member")
    for lifetime in (part.LIFETIME_MIN_US - 1, part.LIFETIME_MAX_US + 1):
        found = steps.apply(part.Enlist("t", "g", "ann", lifetime, 0))
        assert isinstance(found, errors.InvalidArgument)
    assert steps.apply(part.RemoveGroup("t", "g", 0)) == GroupRemoved(already=False)
    assert steps.apply(part.RemoveGroup("t", "g", 0)) == GroupRemoved(already=True)
    assert steps.apply(part.LeaveGroup("t", "g", "a", 0)) == errors.NotSubscribed("t", "g")


def test_groups_and_members_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Divided(limits=Limits(subscriptions_max=1))
    found = steps.apply(part.AddGroup("t", "h", 0))
    assert found == errors.TooMany("subscriptions of the topic", 1)
    monkeypatch.setattr("oncecast.broker.dividing.MEMBERS_MAX", 1)
    steps.enlist("ann")
    full = steps.apply(part.Enlist("t", "g", "bob", LIFETIME, 0))
    assert full == errors.TooMany("members of the consumer group", 1)
    steps.now += LIFETIME
    assert held(steps.enlist("bob")) == [0, 1, 2, 3]


# Fencing per partition


def test_late_member_cannot_take_a_partition_back() -> None:
    """PART-2: its term is lower than that of the next member."""
    steps = Steps()
    steps.create("t#0")
    steps.subscribe("g", topic="t#0")

    def attach(incarnation: str, term: int, expected: int = do.ANY_EPOCH) -> Any:
        return steps.apply(do.Attach("t#0", "g", incarnation, expected, term))

    first = attach("ann", 5)
    assert isinstance(first, Attached)
    second = attach("bob", 7)
    assert second.epoch > first.epoch
    assert attach("ann", 5, second.epoch) == errors.NotAssigned("t#0", "g")
    assert steps.apply(do.Ack("t#0", "g", first.epoch, 0)) == errors.Fenced(second.epoch)
    assert attach("bob", 7) == second
    assert isinstance(attach("cleo", 0), Attached)
    assert attach("ann", 6) == errors.NotAssigned("t#0", "g")
    assert isinstance(attach("ann", 8), Attached)


# Snapshots, moves and the clock


def test_snapshot_keeps_partitions_groups_and_terms() -> None:
    """PART-1 PART-2"""
    steps = Divided()
    mine = steps.enlist("ann")
    steps.enlist("bob")
    steps.subscribe("g", topic="t#0")
    steps.apply(do.Attach("t#0", "g", "ann", term=9))
    steps.restart()
    assert steps.enlist("ann").release == mine.held[2:]
    assert steps.machine.registry.base_of("t#0") == "t"
    assert steps.apply(do.Attach("t#0", "g", "bob", term=8)) == errors.NotAssigned("t#0", "g")
    assert steps.apply(do.OpenProducer("t", "p", "i", 0)) == errors.Partitioned("t", 4)
    steps.now += LIFETIME - 1
    assert held(steps.enlist("bob")) == []
    steps.grow(0)
    steps.restart()
    assert steps.apply(do.OpenProducer("t", "p", "i", 0)) == errors.NoSuchTopic("t")


def test_snapshot_of_plain_topics_is_the_same_as_before() -> None:
    """PART-1: replicas below the feature level compare their snapshots with older versions."""
    steps = Steps()
    steps.create()
    steps.subscribe()
    steps.attach()
    rows = b"".join(steps.machine.state())
    assert not any(tag in rows for tag in (b"PartitionsRow", b"GroupRow", b"TermRow"))


class MoveOfDivided(Move):
    """The exporter has topic `t` with partitions, and the group `g` with a member."""

    def __init__(self) -> None:
        super().__init__()
        self.exporter.apply(do.DeleteTopic("t", self.exporter.now))
        self.exporter.apply(do.CreateTopic("t", self.exporter.now, partitions=2))
        self.exporter.apply(part.AddGroup("t", "g", self.exporter.now))
        self.enlist(self.exporter, "ann")

    def enlist(self, steps: Steps, member: str) -> Any:
        return steps.apply(part.Enlist("t", "g", member, LIFETIME, steps.now))


def test_descriptor_moves_with_its_groups() -> None:
    """PART-2: members keep their partitions, and their time by the clock of the new group."""
    move = MoveOfDivided()
    before = move.enlist(move.exporter, "ann")
    move.importer.now = 50 * S
    move.importer.tick(50 * S)
    move.claim()
    move.freeze()
    assert move.enlist(move.exporter, "ann") == errors.NotHere("t")
    assert not move.exporter.machine.registry.divided
    assert move.adopt() == YES
    move.importer.now += LIFETIME - 1
    found = move.enlist(move.importer, "bob")
    assert (found.held, found.waiting) == ((), True)
    assert move.enlist(move.importer, "ann").held == before.held[:1]
    open_ = do.OpenProducer("t", "p", "i", 0)
    assert move.importer.apply(open_) == errors.Partitioned("t", 2)
    move.importer.now += LIFETIME
    assert held(move.enlist(move.importer, "bob")) == [0, 1]


def test_abandoned_move_keeps_the_descriptor() -> None:
    move = MoveOfDivided()
    move.claim()
    move.freeze()
    assert move.exporter.apply(moves.Thaw("m")) == YES
    open_ = do.OpenProducer("t", "p", "i", 0)
    assert move.exporter.apply(open_) == errors.Partitioned("t", 2)


def test_partitions_and_terms_move_with_their_topics() -> None:
    """PART-2"""
    move = Move()
    topic = move.exporter.machine.registry.topics["t"]
    topic.partition_of = "base"
    topic.subscriptions["s"].term = 5
    move.whole()
    found = move.importer.machine.registry.topics["t"]
    assert (found.partition_of, found.subscriptions["s"].term) == ("base", 5)
    assert state.VERSION == 2


def test_jump_of_the_trusted_time_ends_no_membership_early() -> None:
    """PART-2 SVC-9"""
    steps = Divided()
    steps.enlist("ann")
    steps.machine.registry.topics["t"].retime(Retiming(0, lambda time: time, 500 * S))
    steps.now += 500 * S + LIFETIME - 1
    assert held(steps.enlist("bob")) == []
    steps.now += 1
    assert held(steps.enlist("bob")) == [0, 1, 2, 3]
