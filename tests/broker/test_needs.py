"""Every client request has a defined permission (SEC-2)."""

from __future__ import annotations

from typing import Any, get_args

from msgspec.structs import replace

from oncecast.broker.guard import Guard, Verdict, guard_of_process, refusal_of
from oncecast.broker.needs import COMMANDS, FRAMES
from oncecast.kernel.protocol import NodeId, Value
from oncecast.node.replica import CLIENTS
from oncecast.replication.events import HandOver
from oncecast.security.access import ADMIN, KNOWN, VERBS, Access
from oncecast.security.values import Credentials, Rule, User
from oncecast.wire import commands as do
from oncecast.wire import frames
from oncecast.wire.errors import Denied
from oncecast.wire.frames import Answer, Call, ClientCommand, FlowEnded
from oncecast.wire.partitions import AddGroup, Enlist, LeaveGroup, RemoveGroup, SetPartitions
from oncecast.wire.retention import DEFAULT
from oncecast.wire.ring_transactions import (
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
)
from oncecast.wire.sharing import Settle, Shared
from oncecast.wire.transactions import Accepted, Consumed, EndTransaction, Output

NEW = do.FromNew()
KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))
FETCH = frames.Fetch("t", "s", 1, 0, 0, 1, 1)

# One example of each request, with its permission. A missing type fails the first test.
EXAMPLES: dict[Value, tuple[str, str, str]] = {
    do.CreateTopic("t", 0): ("manage", "t", ""),
    do.SetPolicy("t", 0, DEFAULT): ("manage", "t", ""),
    do.DeleteTopic("t", 0): ("manage", "t", ""),
    do.OpenProducer("t", "p", "inc", 0): ("put", "t", "p"),
    do.Put("t", "p", 1, 0, 1, 1, 0, b""): ("put", "t", "p"),
    do.TimedPut("t", "p", 1, 0, 1, 1, 0, b""): ("put", "t", "p"),
    do.CloseProducer("t", "p", 1): ("put", "t", "p"),
    do.Subscribe("t", "s", NEW, 0): ("read", "t", "s"),
    do.Unsubscribe("t", "s", 0): ("read", "t", "s"),
    do.Attach("t", "s", "inc"): ("read", "t", "s"),
    do.Detach("t", "s", 1, 0): ("read", "t", "s"),
    do.Seek("t", "s", NEW, 0, "x"): ("read", "t", "s"),
    do.Ack("t", "s", 1, 0): ("ack", "t", "s"),
    do.SubscribeShared("t", "s", NEW, 0): ("read", "t", "s"),
    Settle("t", "s", "w", 1): ("ack", "t", "s"),
    do.Stage("src", 0, "a", "t", 1, 1, 0, b""): ("put", "t", "src"),
    do.PublishStaged("src", 0, ("a",), 0, "t"): ("put", "t", "src"),
    do.DropStaged("src", 0, "t"): ("put", "t", "src"),
    do.CloseSource("src", 0, "t"): ("put", "t", "src"),
    do.OpenSource("src", "inc", "t", 0): ("puts", "", "src"),
    EndTransaction("src", "t", 1, 0, 0, 0): ("puts", "", "src"),
    SetPartitions("t", 0, 2): ("manage", "t", ""),
    AddGroup("t", "s", 0): ("read", "t", "s"),
    RemoveGroup("t", "s", 0): ("read", "t", "s"),
    Enlist("t", "s", "m", 1_000_000, 0): ("read", "t", "s"),
    LeaveGroup("t", "s", "m", 0): ("read", "t", "s"),
    PrepareTransaction("src", "t", 1, 0, 0, 0): ("puts", "", "src"),
    DecideTransaction("src", "t", 1, 0, 0, 0): ("puts", "", "src"),
    ResolveTransaction("src", "t", 1, 0, 0, commit=True): ("puts", "", "src"),
    do.AddUser("u", KEYS): ("admin", "", ""),
    do.RemoveUser("u"): ("admin", "", ""),
    do.CreateToken("i", "u", b"", b"", 0): ("admin", "", ""),
    do.RevokeToken("i"): ("admin", "", ""),
    do.Allow(Rule("u", ("put",), "t")): ("admin", "", ""),
    do.Disallow(Rule("u", ("put",), "t")): ("admin", "", ""),
    FETCH: ("read", "t", "s"),
    frames.Tune(FETCH): ("read", "t", "s"),
    frames.Work("t", "s", "w", 1): ("read", "t", "s"),
    frames.Look(1, "t"): ("see", "t", ""),
    frames.Look(1): ("known", "", ""),
    frames.Scan(1, "t", NEW): ("read", "t", ""),
    frames.LookGroup(1): ("known", "", ""),
    frames.Govern(1, HandOver(NodeId("n"))): ("admin", "", ""),
    frames.LookAccess(1): ("admin", "", ""),
    frames.LookBroker(1, "t"): ("known", "", ""),
    frames.LookRing(1): ("known", "", ""),
    frames.LookRing(1, "t"): ("see", "t", ""),
    frames.LeaveRing(1): ("admin", "", ""),
}


def as_frame(example: Value) -> Value:
    if isinstance(example, get_args(ClientCommand)):
        return Call(7, example)
    return example


def test_every_client_command_and_frame_has_a_permission() -> None:
    """SEC-2: a new type fails this test until it is added to the tables."""
    assert set(COMMANDS) == set(get_args(ClientCommand))
    assert set(FRAMES) == set(CLIENTS)
    shown = {type(example) for example in EXAMPLES} | {Call}
    assert shown == {*COMMANDS, *FRAMES}


def test_each_request_needs_its_documented_permission() -> None:
    for example, need in EXAMPLES.items():
        frame = as_frame(example)
        assert FRAMES[type(frame)](frame) == need, example


def test_staging_request_without_a_topic_needs_put_on_any_topic() -> None:
    """SEC-2: the guard also checks the topics of the parts that a publish names."""
    publish = do.PublishStaged("src", 0, ("a",), 0)
    for command in (publish, do.DropStaged("src", 0), do.CloseSource("src", 0)):
        assert FRAMES[Call](Call(1, command)) == ("puts", "", "src")


def test_every_frame_has_a_refusal_that_reveals_nothing() -> None:
    """SEC-2: a refusal contains only ids from the request."""
    for example in EXAMPLES:
        frame = as_frame(example)
        refusal: Any = refusal_of(frame)
        if isinstance(frame, frames.Fetch | frames.Tune):
            assert refusal == FlowEnded("t", "s", 1, Denied())
        elif isinstance(frame, frames.Work):
            assert refusal == frames.WorkEnded("t", "s", "w", Denied())
        else:
            assert refusal == Answer(getattr(frame, "id"), Denied())  # noqa: B009


def test_refusal_for_a_long_name_fits_into_a_frame() -> None:
    fetch = frames.Fetch("t" * 1000, "s", 1, 0, 0, 1, 1)
    assert refusal_of(fetch) == FlowEnded("", "", 1, Denied())
    work = frames.Work("t" * 1000, "s", "w", 1)
    assert refusal_of(work) == frames.WorkEnded("", "", "", Denied())


def test_named_dead_letter_topic_needs_put() -> None:
    """SEC-2: otherwise a reader could append to any topic."""
    root = Access().with_user(User("root")).with_rule(Rule("root", (ADMIN,), "*"))
    access = root.with_rule(Rule("u", ("read",), "t")).with_rule(Rule("u", (), name="*"))
    guard = Guard(lambda: access, lambda client: "u")
    other = do.SubscribeShared("t", "s", NEW, 0, Shared(dead_letters="other"))
    assert guard(NodeId("client/u"), Call(1, other)) == (Answer(1, Denied()),)
    access = access.with_rule(Rule("u", ("put",), "other"))
    assert guard(NodeId("client/u"), Call(1, other)) is None
    plain = do.SubscribeShared("t", "s", NEW, 0, Shared())
    assert guard(NodeId("client/u"), Call(1, plain)) is None


def test_transaction_needs_put_and_ack_for_everything_that_it_names() -> None:
    """SEC-2 TXN-1"""
    root = Access().with_user(User("root")).with_rule(Rule("root", (ADMIN,), "*"))
    access = root.with_rule(Rule("u", ("put",), "out")).with_rule(Rule("u", ("ack",), "in"))
    access = access.with_rule(Rule("u", ("ack",), "other"))
    names = access.with_rule(Rule("u", (), name="u*"))
    end = EndTransaction(
        "u",
        "in",
        1,
        0,
        0,
        0,
        outputs=(Output("out", 1, 1, b""),),
        consumed=(Consumed("in", "u1", 1, 0, 1),),
        accepted=(Accepted("other", "u2", "w", ((1, 0, 1),)),),
    )

    def let_in(access: Access, command: EndTransaction, *staged: str) -> bool:
        guard = Guard(lambda: access, lambda client: "u", staged=lambda command: staged)
        return guard(NodeId("client/u"), Call(1, command)) is None

    assert let_in(names, end)
    assert let_in(names, end, "out")
    assert not let_in(names, end, "in")  # the topic of a staged part
    assert not let_in(access, end)  # the names of the subscriptions
    changes: list[dict[str, Any]] = [
        {"source": "v"},
        {"outputs": (*end.outputs, Output("in", 1, 1, b""))},
        {"consumed": (Consumed("out", "u1", 1, 0, 1),)},
        {"consumed": (Consumed("in", "v", 1, 0, 1),)},
        {"accepted": (Accepted("out", "u2", "w", ()),)},
    ]
    for fields in changes:
        assert not let_in(names, replace(end, **fields)), fields


def test_single_rule_allows_exactly_the_matching_requests() -> None:
    """SEC-2: the test covers every request and every rule."""
    root = Access().with_user(User("root")).with_rule(Rule("root", (ADMIN,), "*"))
    rules = [Rule("u", (verb,), "t") for verb in VERBS[:-1]]
    for rule in rules:
        access = root.with_rule(rule).with_rule(Rule("u", (), name="*"))
        guard = Guard(lambda access=access: access, lambda client: "u")  # type: ignore[misc]
        for example, (verb, topic, _) in EXAMPLES.items():
            seen = verb == "see" and rule.verbs[0] in ("read", "manage")
            allowed = verb == KNOWN or (topic == "t" and (seen or verb in rule.verbs))
            allowed = allowed or (verb == "puts" and "put" in rule.verbs)
            refused = guard(NodeId("client/u"), as_frame(example))
            assert (refused is None) == allowed, (rule, example)


def test_every_request_under_another_principal_name_is_refused() -> None:
    """SEC-2: otherwise a client could fence another principal's client."""
    root = Access().with_user(User("root")).with_rule(Rule("root", (ADMIN,), "*"))
    access = root.with_rule(Rule("u", VERBS[:-1], "t"))
    guard = Guard(lambda: access, lambda client: "u")
    for example, (*_, name) in EXAMPLES.items():
        if name:
            assert guard(NodeId("client/u"), as_frame(example)), example


def test_guard_accepts_messages_from_nodes() -> None:
    access = Access().with_user(User("root"))
    guard = Guard(lambda: access)
    assert guard(NodeId("node"), frames.LookRing(1)) is not None
    assert guard(NodeId("node"), Answer(1, Denied())) is None


def test_process_redirects_only_requests_that_it_does_not_execute() -> None:
    """A request that this node would execute always needs permission."""
    assert Verdict.REFUSE is Guard(Access)._verdict(frames.LookRing(1))
    process = guard_of_process(Access)
    verdicts = {kind: process._verdict(example_of(kind)) for kind in FRAMES}
    redirected = {kind for kind in FRAMES if verdicts[kind] is Verdict.REDIRECT}
    of_topic = {Call, frames.Fetch, frames.Work, frames.Look, frames.Scan, frames.LookBroker}
    assert redirected == of_topic
    assert [kind for kind in FRAMES if verdicts[kind] is Verdict.DROP] == [frames.Tune]


def example_of(kind: type) -> Value:
    return next(frame for frame in map(as_frame, EXAMPLES) if type(frame) is kind)
