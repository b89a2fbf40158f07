"""Topics are created, deleted and retained, and invalid commands are refused."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.limits import Limits
from oncecast.wire.results import (
    Appended,
    PolicySet,
    ProducerClosed,
    TopicCreated,
    TopicDeleted,
    Unsubscribed,
)
from oncecast.wire.retention import DEFAULT, Policy
from tests.broker.machine_steps import Steps


def filled(policy: Policy, messages: int = 10) -> Steps:
    """Return a topic without subscriptions that gets a 100-byte message per microsecond."""
    steps = Steps()
    steps.create(policy=policy)
    epoch = steps.open()
    for number in range(messages):
        steps.now += 1
        steps.put(epoch, number)
    return steps


def test_repeated_create_gets_already_unless_its_policy_differs() -> None:
    steps = Steps()
    assert steps.create() == TopicCreated(1, already=False)
    assert steps.create() == TopicCreated(1, already=True)
    assert steps.create(policy=Policy(keep_all=True)) == errors.TopicExists("t")


def test_recreated_topic_has_another_id_and_starts_at_offset_0() -> None:
    steps = Steps()
    steps.subscribe()
    steps.put(steps.open(), 0)
    assert steps.apply(do.DeleteTopic("t", 0)) == TopicDeleted(already=False)
    assert steps.apply(do.DeleteTopic("t", 0)) == TopicDeleted(already=True)
    assert steps.machine.needed() == steps.slot + 1
    assert steps.create() == TopicCreated(2, already=False)
    assert steps.machine.bounds("t") == (0, 0)


@pytest.mark.parametrize("name", ["my data", "ü" * 127, "\n", "a/b"])
def test_topic_names_are_stored_unchanged(name: str) -> None:
    """SVC-1"""
    steps = Steps()
    steps.create(name)
    assert list(steps.machine.registry.topics) == [name]


@pytest.mark.parametrize("name", ["", "x" * 256, "ü" * 128, "\ud800"])
def test_invalid_names_are_refused(name: str) -> None:
    """SVC-7"""
    steps = Steps()
    commands: list[do.Command] = [
        do.CreateTopic(name, 0),
        do.SetPolicy(name, 0, DEFAULT),
        do.OpenProducer(name, "p", "inc-1", 0),
        do.OpenProducer(name, "p", "inc-1", 0, create=False),
        do.Put(name, "p", 1, 0, 1, 1, 0, b""),
        do.Subscribe(name, "s", do.FromNew(), 0),
        do.Attach(name, "s", "inc-1"),
        do.Ack(name, "s", 1, 1),
        do.Stage("source", 0, "part", name, 1, 1, 0, b""),
    ]
    assert [steps.apply(command) for command in commands] == [errors.InvalidTopic()] * len(commands)
    others: list[tuple[str, do.Command]] = [
        ("producer", do.OpenProducer("t", name, "inc-1", 0)),
        ("incarnation", do.OpenProducer("t", "p", name, 0)),
        ("subscription", do.Subscribe("t", name, do.FromNew(), 0)),
        ("incarnation", do.Attach("t", "s", name)),
        ("token", do.Seek("t", "s", do.FromNew(), 0, name)),
        ("source", do.Stage(name, 0, "part", "t", 1, 1, 0, b"")),
        ("part", do.Stage("source", 0, name, "t", 1, 1, 0, b"")),
        ("source", do.PublishStaged(name, 0, (), 0)),
    ]
    for what, command in others:
        assert steps.apply(command) == errors.InvalidName(what)
    assert not steps.machine.registry.topics


def test_unused_topic_is_deleted() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    assert steps.apply(do.Unsubscribe("t", "s", 0)) == Unsubscribed(already=False)
    assert "t" in steps.machine.registry.topics  # its producer may return
    assert steps.apply(do.CloseProducer("t", "p", epoch)) == ProducerClosed(already=False)
    assert "t" not in steps.machine.registry.topics


def test_declared_topic_is_kept_until_it_is_deleted() -> None:
    steps = Steps()
    steps.create()
    steps.subscribe()
    steps.apply(do.Unsubscribe("t", "s", 0))
    assert "t" in steps.machine.registry.topics


def test_topic_with_retention_is_kept_until_its_policy_changes() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    steps.apply(do.SetPolicy("t", 0, Policy(keep_all=True)))
    steps.apply(do.Unsubscribe("t", "s", 0))
    assert "t" in steps.machine.registry.topics
    assert steps.apply(do.SetPolicy("t", 0, DEFAULT)) == PolicySet(already=False)
    assert "t" not in steps.machine.registry.topics


def test_keep_all_keeps_acknowledged_messages() -> None:
    """SVC-9"""
    steps = filled(Policy(keep_all=True), 5)
    steps.subscribe(start=do.FromEarliest())
    steps.ack(steps.attach().epoch, 5)
    assert steps.kept() == [0, 1, 2, 3, 4]


def test_age_limit_keeps_messages_without_subscriptions() -> None:
    """SVC-9"""
    steps = filled(Policy(age_us=5))
    assert steps.kept() == [5, 6, 7, 8, 9]
    steps.tick(1013)
    assert steps.kept() == [8, 9]
    steps.tick(1015)
    assert steps.kept() == []


def test_age_limit_does_not_drop_unread_messages() -> None:
    """SVC-9"""
    steps = Steps()
    steps.create(policy=Policy(age_us=5))
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    steps.tick(9000)
    assert steps.kept() == [0]
    steps.ack(steps.attach().epoch, 1)
    assert steps.kept() == []


def test_byte_limit_keeps_the_newest_batches_that_fit() -> None:
    """SVC-9"""
    assert filled(Policy(bytes_max=399)).kept() == [7, 8, 9]
    assert filled(Policy(bytes_max=400)).kept() == [6, 7, 8, 9]


def test_batch_above_the_byte_limit_is_not_kept() -> None:
    """SVC-5: the reply has kept=False."""
    steps = filled(Policy(bytes_max=50), 0)
    assert steps.put(steps.open(), 0) == Appended(0, 1, kept=False)


def test_stricter_of_age_and_byte_limit_applies() -> None:
    """SVC-9"""
    assert filled(Policy(age_us=5, bytes_max=300)).kept() == [7, 8, 9]
    assert filled(Policy(age_us=3, bytes_max=900)).kept() == [7, 8, 9]


def test_new_policy_applies_at_once() -> None:
    """SVC-9"""
    steps = filled(Policy(keep_all=True))
    new = Policy(bytes_max=200)
    assert steps.apply(do.SetPolicy("t", 0, new)) == PolicySet(already=False)
    assert steps.kept() == [8, 9]
    assert steps.apply(do.SetPolicy("t", 0, new)) == PolicySet(already=True)
    assert steps.apply(do.SetPolicy("nowhere", 0, new)) == errors.NoSuchTopic("nowhere")


@pytest.mark.parametrize(
    "policy",
    [
        Policy(age_us=-1),
        Policy(bytes_max=-1),
        Policy(keep_all=True, age_us=1),
        Policy(keep_all=True, drop_unread=True),
        Policy(drop_unread=True),
    ],
)
def test_contradictory_policies_are_refused(policy: Policy) -> None:
    """SVC-7"""
    steps = Steps()
    assert isinstance(steps.create(policy=policy), errors.InvalidArgument)
    steps.create()
    assert isinstance(steps.apply(do.SetPolicy("t", 0, policy)), errors.InvalidArgument)


def test_clock_never_goes_backwards_or_out_of_bounds() -> None:
    steps = Steps()
    steps.apply(do.Tick(1 << 80))
    clock = steps.machine.registry.clock.now
    steps.apply(do.Tick(5))
    assert steps.machine.registry.clock.now == clock == 1 << 62
    steps.subscribe()
    assert steps.put(steps.open(), 0) == Appended(0, 1, kept=True)


def test_topics_and_producers_are_limited() -> None:
    """SVC-7"""
    steps = Steps(Limits(topics_max=1, producers_max=1))
    steps.open()
    assert steps.create("more") == errors.TooMany("topics", 1)
    assert steps.subscribe(topic="more") == errors.TooMany("topics", 1)
    second = steps.apply(do.OpenProducer("more", "p", "inc-1", 0))
    assert second == errors.TooMany("topics", 1)
    third = steps.apply(do.OpenProducer("t", "q", "inc-1", 0))
    assert third == errors.TooMany("producers in the topic", 1)


def test_every_refusal_has_a_unique_code_a_message_and_a_remedy() -> None:
    """SVC-7"""
    refusals = get_args(errors.AnyRefusal)
    codes = [kind.error.code for kind in refusals]
    assert len(set(codes)) == len(codes)
    assert set(refusals) == set(errors.Refusal.__subclasses__())
    for kind in refusals:
        values = [1 if f.type is int else "name" for f in msgspec.structs.fields(kind)]
        refusal = kind(*values)
        error = refusal.raised()
        assert (type(error), str(error)) == (kind.error, str(refusal))
        assert error.message
        assert error.remedy in str(error)


def test_commands_survive_encoding_and_decoding() -> None:
    """SVC-7"""
    command = do.Carry(7, 3, do.Put("t", "p", 1, 0, 1, 3, 9, b"abc"))
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(command), type=do.Command)
    assert decoded == command
