"""Late copies of a call get the first copy's result and change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from oncecast.broker import moves
from oncecast.broker.answered import ANSWERED_MAX
from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidName, NotHere, Refusal, TooMany, TopicExists
from oncecast.wire.limits import Limits
from oncecast.wire.results import PolicySet, Result, TopicCreated, TopicDeleted
from oncecast.wire.retention import DEFAULT, Policy
from tests.broker.machine_steps import Steps

KEEP = Policy(keep_all=True)
NEW = do.FromNew()


@dataclass
class Late:
    """A call, the commands before it, and later commands from other clients."""

    before: list[do.Command]
    call: Any
    after: list[do.Command]


CREATE, DELETE = do.CreateTopic("t", 0), do.DeleteTopic("t", 0)
SUBSCRIBE, UNSUBSCRIBE = do.Subscribe("t", "s", NEW, 0), do.Unsubscribe("t", "s", 0)
SEEK = do.Seek("t", "s", NEW, 0, "x")

STAGE = do.Stage("query", 0, "a", "t", 1, 100, 0, b"bytes")
PUBLISH = do.PublishStaged("query", 0, ("a",), 0)

LATE = {
    "delete": Late([CREATE], replace(DELETE, token="x"), [CREATE, SUBSCRIBE]),
    "create": Late([], replace(CREATE, token="x"), [DELETE]),
    "policy": Late([CREATE], do.SetPolicy("t", 0, KEEP, "x"), [do.SetPolicy("t", 0, DEFAULT)]),
    "unsubscribe": Late([CREATE, SUBSCRIBE], replace(UNSUBSCRIBE, token="x"), [SUBSCRIBE]),
    "subscribe": Late([CREATE], replace(SUBSCRIBE, token="x"), [UNSUBSCRIBE]),
    "seek": Late([CREATE, SUBSCRIBE], SEEK, [replace(SEEK, start=do.FromEarliest(), token="y")]),
    "seek of a removed subscription": Late([CREATE, SUBSCRIBE], SEEK, [UNSUBSCRIBE, SUBSCRIBE]),
    "drop staged": Late([STAGE], do.DropStaged("query", 0, token="x"), [STAGE]),
    "close source": Late([STAGE], do.CloseSource("query", 0, token="x"), [STAGE, PUBLISH]),
}


def contents(machine: Machine) -> Any:
    """Return the visible state of topics and sources."""
    registry = machine.registry
    topics = [
        (
            (topic.name, topic.id, topic.policy, topic.index.summary()),
            [(name, each.cursor, each.epoch) for name, each in topic.subscriptions.items()],
        )
        for topic in registry.topics.values()
    ]
    sources = registry.staging.sources.items()
    return topics, [(name, each.published, [*each.staged]) for name, each in sources]


def again(result: Result) -> Result:
    """Return the result of a duplicate call."""
    has_mark = "already" in result.__struct_fields__
    return replace(result, already=True) if has_mark else result


def late_copy(late: Late, *, restored: bool = False) -> None:
    steps = Steps()
    for command in late.before:
        steps.apply(command)
    answer = steps.apply(late.call)
    assert not isinstance(answer, Refusal)
    for command in late.after:
        steps.apply(command)
    if restored:
        copy = Machine.restore(list(steps.machine.state()))
        assert copy.checksum() == steps.machine.checksum()
        steps.machine = copy
    seen = contents(steps.machine)
    assert steps.apply(late.call) == again(answer)
    assert contents(steps.machine) == seen


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_late_duplicate_of_a_call_gets_already_and_changes_nothing(late: Late) -> None:
    """SVC-6 SVC-13"""
    late_copy(late)


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_restored_machine_keeps_answered_calls(late: Late) -> None:
    """SVC-10"""
    late_copy(late, restored=True)


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_call_without_a_token_or_with_another_token_is_a_new_call(late: Late) -> None:
    """SVC-10: clients of an older version send no token, except for a seek."""
    for other in ("z",) if isinstance(late.call, do.Seek) else ("", "z"):
        steps = Steps()
        for command in [*late.before, late.call, *late.after]:
            steps.apply(command)
        seen = contents(steps.machine)
        steps.apply(replace(late.call, token=other))
        assert contents(steps.machine) != seen


def test_call_token_is_valid_only_for_its_topic() -> None:
    """SEC-2: a client that knows a token can neither get its result nor replace it."""
    steps = Steps()
    steps.apply(do.CreateTopic("mine", 0, token="x"))
    assert steps.apply(replace(CREATE, token="x")) == TopicCreated(2, already=False)
    assert steps.apply(do.DeleteTopic("mine", 0, token="y")) == TopicDeleted(already=False)
    assert steps.apply(replace(DELETE, token="y")) == TopicDeleted(already=False)
    restored = Machine.restore(list(steps.machine.state()))
    assert [*restored.registry.answered.items()] == [*steps.machine.registry.answered.items()]


def test_late_duplicate_of_a_delete_keeps_the_messages_in_a_recreated_topic() -> None:
    """SVC-1"""
    steps = Steps()
    steps.create()
    delete = replace(DELETE, token="x")
    steps.apply(delete)
    steps.subscribe()
    steps.put(steps.open(), 0, 3)
    assert steps.apply(delete) == TopicDeleted(already=True)
    assert steps.machine.bounds("t") == (0, 3)


def test_late_duplicate_of_a_refused_call_is_refused_too() -> None:
    """SVC-10: a client does not expect a refused change to happen later."""
    steps = Steps(Limits(topics_max=1))
    steps.create("other")
    call = replace(CREATE, token="x")
    assert steps.apply(call) == TooMany("topics", 1)
    steps.apply(do.DeleteTopic("other", 0))
    assert steps.apply(call) == TooMany("topics", 1)
    assert steps.apply(replace(call, token="y")) == TopicCreated(2, already=False)


def test_only_the_last_1000_answered_calls_are_kept() -> None:
    """SVC-10: memory use is bounded."""
    assert ANSWERED_MAX == 1000
    steps = Steps()
    first, second = (do.CreateTopic("t", 0, token=token) for token in ("0", "1"))
    answer = steps.apply(first)
    for number in range(1, ANSWERED_MAX):
        steps.apply(do.CreateTopic("t", 0, token=str(number)))
        assert steps.apply(first) == again(answer)
    steps.apply(do.CreateTopic("t", 0, token="the 1,001st"))
    steps.apply(DELETE)
    assert steps.apply(second) == TopicCreated(1, already=True)
    assert contents(steps.machine) == ([], [])
    assert steps.apply(first) == TopicCreated(2, already=False)
    assert len([*steps.machine.registry.answered.items()]) == ANSWERED_MAX


def test_duplicate_call_advances_the_clock() -> None:
    """SVC-9: the leader counts every command with a timestamp."""
    for again in ("x", "x" * 256):
        steps = Steps()
        steps.apply(do.CreateTopic("t", 1000, token="x"))
        steps.apply(do.CreateTopic("t", 2000, token=again))
        assert steps.machine.registry.clock.now == 2000


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_call_with_an_oversized_token_is_refused(late: Late) -> None:
    """SVC-7"""
    steps = Steps()
    for command in late.before:
        steps.apply(command)
    seen = contents(steps.machine)
    assert steps.apply(replace(late.call, token="x" * 256)) == InvalidName("token")
    assert contents(steps.machine) == seen
    assert not isinstance(steps.apply(replace(late.call, token="x" * 255)), Refusal)


def test_checksum_covers_answered_calls() -> None:
    """SVC-10"""
    some, others = Steps(), Steps()
    some.apply(do.CreateTopic("t", 0, token="x"))
    others.apply(do.CreateTopic("t", 0, token="y"))
    assert some.machine.checksum() != others.machine.checksum()


def test_not_here_is_not_kept_as_an_answer() -> None:
    """REP-6: the topic may move to this group before the next copy arrives."""
    steps = Steps()
    steps.apply(moves.Found("g-a", first=False))
    call = replace(CREATE, token="x")
    assert steps.apply(call) == NotHere("t")
    assert [*steps.machine.registry.answered.items()] == []


def test_all_kinds_of_results_are_restored() -> None:
    """SVC-10"""
    steps = Steps(Limits(topics_max=1, subscriptions_max=0))
    calls: list[do.Once] = [
        do.CreateTopic("", 0, token="1"),
        do.CreateTopic("t", 0, Policy(age_us=-1), "2"),
        do.SetPolicy("t", 0, KEEP, "3"),
        do.CreateTopic("t", 0, token="4"),
        do.CreateTopic("t", 0, KEEP, "5"),
        do.SetPolicy("t", 0, KEEP, "6"),
        do.Subscribe("t", "", NEW, 0, "7"),
        do.Subscribe("t", "s", NEW, 0, "8"),
        do.Unsubscribe("t", "s", 0, "9"),
        do.DeleteTopic("t", 0, "10"),
    ]
    answers = [steps.apply(call) for call in calls]
    assert answers[4] == TopicExists("t")
    assert answers[5] == PolicySet(already=False)
    steps.machine = Machine.restore(list(steps.machine.state()))
    assert [steps.apply(call) for call in calls] == [again(each) for each in answers]


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_log_and_snapshot_from_an_older_version_can_be_read(late: Late) -> None:
    """SVC-10: commands in them have no token, and no results are kept."""
    command = replace(late.call, token="")
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(command))[:-1])
    assert msgspec.msgpack.decode(older, type=type(command)) == command
    steps = Steps()
    for each in [*late.before, command]:
        steps.apply(each)
    assert b"AnsweredRow" not in b"".join(steps.machine.state())
