"""Push delivery with users: the owner of the topic decides which client may read (SEC-2)."""

from __future__ import annotations

from typing import Any

from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.ring.push_messages import AcksUp, CheckReaders, ReaderId, ReadersChecked, ReadPermit
from oncecast.ring.relay import FlushAcks, Relay
from oncecast.security.values import Credentials, Rule
from oncecast.wire import commands as do
from oncecast.wire.commands import Ack
from oncecast.wire.errors import Denied
from oncecast.wire.frames import FlowEnded
from tests.ring.test_pusher import Leader
from tests.ring.test_relay import ANN, LEADER, TOPIC_ID, T, make, tune

KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))


def permits(leader: Leader, *reader_ids: ReaderId) -> list[ReadPermit]:
    (answer,) = leader.hear(CheckReaders(reader_ids))
    assert isinstance(answer, Send)
    assert isinstance(answer.message, ReadersChecked)
    return list(answer.message.permits)


def test_owner_permits_only_readers_with_matching_rules() -> None:
    """SEC-2"""
    leader = Leader()
    leader.apply(do.Attach("t", "s", "inc-1"))
    epoch = leader.service.machine.registry.topics["t"].subscriptions["s"].epoch
    rules = (Rule("ann", ("read",), "t"), Rule("bob", ("read", "ack"), "t"))
    names = (Rule("ann", (), name="s"), Rule("bob", (), name="s"))
    leader.apply(do.AddUser("root", KEYS, admin=True))
    for rule in (*rules, *names, Rule("eve", ("read",), "t")):
        leader.apply(do.Allow(rule))
    readers = [ReaderId("t", "s", epoch, name) for name in ("ann", "bob", "eve", "", "root")]
    found = permits(leader, *readers)
    assert [each.why for each in found] == [None, None, Denied(), Denied(), None]
    assert [each.may_ack for each in found[:2]] == [False, True]
    missing = ReaderId("missing", "s", epoch, "eve")
    stale = ReaderId("t", "s", epoch + 1, "eve")
    assert [each.why for each in permits(leader, missing, stale)] == [Denied(), Denied()]


def ann_of(client: NodeId) -> str:
    return "ann"


def checked(*, why: Any = None, cursor: int = 0, may_ack: bool = True) -> ReadersChecked:
    reader_id = ReaderId(T, "s", 7, "ann")
    return ReadersChecked((ReadPermit(reader_id, cursor, 0, TOPIC_ID, 0, 5, why, may_ack=may_ack),))


def sent(relay: Relay) -> list[Any]:
    return [each for each in relay.drain() if isinstance(each, Send)]


def test_relay_sends_the_reader_principal_to_the_owner() -> None:
    relay, _ = make(principal_of=ann_of)
    relay.receive(ANN, tune())
    assert sent(relay) == [Send(LEADER, CheckReaders((ReaderId(T, "s", 7, "ann"),)))]
    relay.receive(LEADER, checked(why=Denied()))
    assert sent(relay) == [Send(ANN, FlowEnded(T, "s", 7, Denied()))]
    assert not len(relay.flows)


def test_acks_are_forwarded_only_with_a_permit() -> None:
    """SEC-2: a client without the `ack` right cannot move a cursor through another process."""
    relay, _ = make(principal_of=ann_of)
    relay.receive(ANN, tune(ack=3))
    assert not [each for each in relay.drain() if isinstance(each, Later)]
    relay.receive(LEADER, checked())
    relay.drain()
    relay.timeout(FlushAcks())
    assert Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 3),))) in relay.drain()
    relay.receive(ANN, tune(ack=4))
    relay.drain()
    relay.timeout(FlushAcks())
    assert Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 4),))) in relay.drain()


def test_flow_ends_if_its_reader_acknowledges_without_permission() -> None:
    relay, _ = make(principal_of=ann_of)
    relay.receive(ANN, tune(ack=3))
    relay.drain()
    relay.receive(LEADER, checked(cursor=3, may_ack=False))
    assert len(relay.flows)  # the ack repeats the cursor and moves nothing
    relay.receive(ANN, tune(ack=4))
    relay.drain()
    relay.receive(LEADER, checked(cursor=3, may_ack=False))
    assert sent(relay) == [Send(ANN, FlowEnded(T, "s", 7, Denied()))]
