"""Commands and reads with oversized names or too many names are refused early."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from oncecast.broker.events import Execute, Executed
from oncecast.broker.service import COMMAND_BYTES_MAX
from oncecast.broker.sizes import ACCESS_BYTES_MAX, NAMES, size_fault
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import Ask, Emit, Send
from oncecast.replication.events import Propose
from oncecast.security.values import Rule
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import Answer, Call, ClientCommand, Fetch, FlowEnded, Look
from oncecast.wire.limits import NAME_BYTES_MAX, PARTS_MAX
from oncecast.wire.partitions import AddGroup, Enlist, LeaveGroup, RemoveGroup, SetPartitions
from oncecast.wire.retention import DEFAULT
from oncecast.wire.ring_transactions import (
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
    Share,
)
from oncecast.wire.sharing import Settle
from oncecast.wire.transactions import (
    JOBS_MAX,
    STAGED_MAX,
    SUBSCRIPTIONS_MAX,
    TOPICS_MAX,
    Accepted,
    Consumed,
    EndTransaction,
    Output,
)
from tests.broker.desk import ANN, Desk, packed
from tests.broker.test_gateway_exactly import bare

LONG = "x" * (NAME_BYTES_MAX + 1)
EXACT = "é" * (NAME_BYTES_MAX // 2) + "e"
START = do.FromEarliest()
COMMANDS: list[Any] = [
    do.CreateTopic("t", 0),
    do.SetPolicy("t", 0, DEFAULT),
    do.DeleteTopic("t", 0),
    do.OpenProducer("t", "p", "i", 0),
    do.Put("t", "p", 1, 0, 1, len(packed(b"x")), 0, packed(b"x")),
    do.TimedPut("t", "p", 1, 0, 1, len(packed(b"x")), 0, packed(b"x")),
    do.CloseProducer("t", "p", 1),
    do.Subscribe("t", "s", START, 0),
    do.Unsubscribe("t", "s", 0),
    do.Attach("t", "s", "i"),
    do.Detach("t", "s", 1, 0),
    do.Ack("t", "s", 1, 0),
    do.Seek("t", "s", START, 0, "k"),
    do.SubscribeShared("t", "s", START, 0),
    Settle("t", "s", "w", 1),
    do.Stage("s", 1, "p", "t", 1, len(packed(b"x")), 0, packed(b"x")),
    do.PublishStaged("s", 1, ("p",), 0),
    do.DropStaged("s", 1),
    do.CloseSource("s", 0),
    do.OpenSource("s", "i", "t", 0),
    EndTransaction("s", "t", 1, 0, 0, 0),
    SetPartitions("t", 0, 2),
    AddGroup("t", "s", 0),
    RemoveGroup("t", "s", 0),
    Enlist("t", "s", "m", 1_000_000, 0),
    LeaveGroup("t", "s", "m", 0),
    PrepareTransaction("s", "t", 1, 0, 0, 0, coordinator=Share("u", 1, 0)),
    DecideTransaction("s", "t", 1, 0, 0, 0),
    ResolveTransaction("s", "t", 1, 0, 0, commit=True),
]


ABOUT_ACCESS: list[Any] = [
    do.AddUser("u", None),
    do.RemoveUser("u"),
    do.CreateToken("i", "u", b"s", bytes(32), 0),
    do.RevokeToken("i"),
    do.Allow(Rule("u", ("put",), "t")),
    do.Disallow(Rule("u", ("put",), "t")),
]


def test_every_string_field_in_every_command_is_checked() -> None:
    """SEC-3: a new command or field must not escape the check."""
    every = [type(each) for each in (*COMMANDS, *ABOUT_ACCESS)]
    assert every == list(get_args(ClientCommand))
    for command in COMMANDS:
        texts = [
            name
            for name in type(command).__struct_fields__
            if isinstance(getattr(command, name), str)
        ]
        assert list(NAMES[type(command)]) == texts


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: type(each).__name__)
def test_long_name_is_refused_before_it_is_proposed(command: Any) -> None:
    """SEC-3"""
    for name in NAMES[type(command)]:
        gateway = bare()
        long = msgspec.structs.replace(command, **{name: LONG})
        gateway.receive(ANN, Call(1, long))
        refusal = errors.InvalidTopic() if name == "topic" else errors.InvalidName(name)
        assert gateway.drain()[1:] == [_sent(Answer(1, refusal))]
        assert size_fault(msgspec.structs.replace(command, **{name: EXACT})) is None


@pytest.mark.parametrize("command", ABOUT_ACCESS, ids=lambda each: type(each).__name__)
def test_oversized_field_in_a_user_token_or_rule_is_refused(command: Any) -> None:
    """SEC-3"""
    assert size_fault(command) is None
    about = command.rule if isinstance(command, do.Allow | do.Disallow) else command
    for name in about.__struct_fields__:
        if isinstance(getattr(about, name), str | bytes):
            long = LONG if isinstance(getattr(about, name), str) else LONG.encode()
            changed = msgspec.structs.replace(about, **{name: long})
            whole: Any = (
                changed if about is command else msgspec.structs.replace(command, rule=changed)
            )
            assert size_fault(whole) is not None, name


def _sent(message: Any) -> Any:
    return Send(ANN, message)


def test_oversized_access_command_is_refused() -> None:
    """SEC-3: the fields are nested, so the limit applies to the whole command."""
    rule = Rule("ann", ("read",), "x" * ACCESS_BYTES_MAX)
    for command in (do.RemoveUser(rule.topic), do.Allow(rule), do.Disallow(rule)):
        assert isinstance(size_fault(command), errors.InvalidArgument)
    assert size_fault(do.Allow(Rule("ann", ("read",), "x" * 255))) is None


def test_publish_with_too_many_parts_or_long_names_is_refused() -> None:
    """SEC-3"""
    many = do.PublishStaged("s", 1, ("p",) * (PARTS_MAX + 1), 0)
    assert size_fault(many) == errors.TooMany("parts in one publish", PARTS_MAX)
    assert size_fault(msgspec.structs.replace(many, parts=many.parts[1:])) is None
    assert size_fault(msgspec.structs.replace(many, parts=("p", LONG))) == errors.InvalidName(
        "part"
    )


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"parts": (LONG,)}, errors.InvalidName("part")),
        ({"outputs": (Output(LONG, 1, 1, b""),)}, errors.InvalidTopic()),
        ({"consumed": (Consumed(LONG, "s", 1, 0, 1),)}, errors.InvalidTopic()),
        ({"consumed": (Consumed("t", LONG, 1, 0, 1),)}, errors.InvalidName("subscription")),
        ({"accepted": (Accepted(LONG, "s", "w", ((1, 0, 1),)),)}, errors.InvalidTopic()),
        (
            {"accepted": (Accepted("t", LONG, "w", ((1, 0, 1),)),)},
            errors.InvalidName("subscription"),
        ),
        ({"accepted": (Accepted("t", "s", LONG, ((1, 0, 1),)),)}, errors.InvalidName("worker")),
    ],
)
def test_transaction_with_a_long_name_is_refused(fields: Any, fault: errors.Refusal) -> None:
    """SEC-3 TXN-1"""
    end = EndTransaction("s", "t", 1, 0, 0, 0)
    assert size_fault(msgspec.structs.replace(end, **fields)) == fault


def test_transaction_over_a_limit_is_refused_before_it_is_proposed() -> None:
    """SEC-3 TXN-1: a transaction at all limits fits into a frame."""
    parts = tuple(map(str, range(STAGED_MAX)))
    outputs = tuple(Output(str(n), 1, 1, b"") for n in range(TOPICS_MAX))
    consumed = tuple(Consumed("t", str(n), 1, 0, 1) for n in range(SUBSCRIPTIONS_MAX - 1))
    runs = tuple((1, n, 1) for n in range(JOBS_MAX))
    accepted = (Accepted("t", "w", "ann", runs),)
    end = EndTransaction("s", "t", 1, 0, 0, 0, True, parts, outputs, consumed, accepted)
    assert size_fault(end) is None
    assert Codec((Call,), wary=True).decode(Codec((Call,)).encode(Call(1, end))) == Call(1, end)
    over = size_fault(msgspec.structs.replace(end, parts=(*parts, "p")))
    assert over == errors.InvalidArgument(
        "the transaction has 5,001 staged parts (limit 5,000); use several"
    )


def test_command_as_large_as_a_frame_does_not_block_the_group() -> None:
    """SEC-3: such a command once became an Accept that could never be sent."""
    desk = Desk()
    assert desk.call(ANN, do.CreateTopic("x" * (8 << 20), 0)) == errors.InvalidTopic()
    assert desk.call(ANN, do.CreateTopic("topic", 0)).already is False


def test_command_larger_than_a_frame_is_refused_in_any_layer() -> None:
    """SEC-3"""
    service = bare()._service
    service.drain()
    limit = service._limits.batch_bytes_max + COMMAND_BYTES_MAX
    large = do.Acks((do.Ack("x" * limit, "s", 1, 1),), 0)
    service.request(Execute(5, large))
    assert service.drain() == [Emit(Executed(5, errors.TooLarge("bytes", limit)))]
    service.request(Execute(6, do.DropStaged("s", 1)))
    assert [type(each.request) for each in service.drain() if isinstance(each, Ask)] == [Propose]


def test_read_with_long_names_is_refused() -> None:
    """SEC-3: reads that wait for a lease stay in memory."""
    gateway = bare()
    gateway.receive(ANN, Look(1, LONG))
    gateway.receive(ANN, Look(2, "", LONG))
    gateway.receive(ANN, Look(3, "", "", LONG))
    gateway.receive(ANN, Fetch(LONG, "s", 4, 0, 0, 1, 1))
    gateway.receive(ANN, Fetch("t", LONG, 5, 0, 0, 1, 1))
    assert gateway.drain()[1:] == [
        _sent(Answer(1, errors.InvalidTopic())),
        _sent(Answer(2, errors.InvalidName("prefix"))),
        _sent(Answer(3, errors.InvalidName("prefix"))),
        _sent(FlowEnded("", "", 4, errors.InvalidTopic())),
        _sent(FlowEnded("", "", 5, errors.InvalidName("subscription"))),
    ]
    assert gateway.refused == 5
