"""Test the exact effects of each input to the pusher. NET-6"""

from __future__ import annotations

from random import Random

import msgspec

from oncecast.broker.events import Changed
from oncecast.broker.moves import AnyCommand
from oncecast.broker.service import Service
from oncecast.kernel.protocol import Ask, Effect, Emit, Later, NodeId, Send
from oncecast.replication.events import Decided, LeaderChanged, Missing
from oncecast.ring.push_messages import (
    AcksUp,
    CheckReaders,
    Fill,
    Filled,
    Push,
    PushWanted,
    ReaderId,
    ReadersChecked,
    ReadPermit,
)
from oncecast.ring.pusher import PushDue, Pusher, Remind
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced, NoSuchTopic
from oncecast.wire.frames import Chunk, Scan
from oncecast.wire.retention import Policy

ME, LOOKUP, ROOT = NodeId("me:1/g"), NodeId("me:1"), NodeId("root:1")
OTHER = NodeId("other:1/g")
FENCED = 1  # epoch of the only subscription
PACKED = batch.encode([b"x"], timestamps=1)


class Leader:
    """A single-replica group that decides every command."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.sure = True
        self.unreadable: set[int] = set()
        self.service = Service(ME, Random(1), group=self)
        self.pusher = Pusher(ME, Random(1), service=self.service, process=LOOKUP)
        self.lead(ME)
        self.add("t")
        self.pusher.drain()

    level = 1

    @property
    def applied(self) -> int:
        return len(self.log) - 1

    def leads(self, now: float) -> bool:
        return self.sure

    def follows(self, now: float) -> bool:
        return False

    def nodes(self) -> tuple[NodeId, ...]:
        return (ME, OTHER)

    def entry(self, slot: int) -> bytes:
        if slot in self.unreadable:
            raise Missing(slot)
        return self.log[slot]

    def lead(self, leader: NodeId) -> None:
        self.service.observe(LeaderChanged(leader))
        self.pusher.observe(LeaderChanged(leader))

    def apply(self, command: AnyCommand) -> None:
        self.log.append(msgspec.msgpack.encode(command))
        self.service.observe(Decided(len(self.log) - 1, self.log[-1]))
        for each in self.service.drain():
            if isinstance(each, Emit) and isinstance(each.event, Changed):
                self.pusher.observe(each.event)

    def put(self, topic: str = "t", packed: bytes = PACKED, count: int = 1) -> None:
        producer = self.service.machine.registry.topics[topic].producers["p"]
        facts = (producer.epoch, producer.next, count, 1, 0, packed)
        self.apply(do.Put(topic, "p", *facts))

    def add(self, topic: str) -> None:
        self.apply(do.Subscribe(topic, "s", do.FromEarliest(), 0))
        self.apply(do.OpenProducer(topic, "p", "inc-1", 0))

    def hear(self, message: PushWanted | Fill | CheckReaders | AcksUp | PushDue) -> list[Effect]:
        self.pusher.receive(ME if isinstance(message, PushDue) else ROOT, message)
        return self.pusher.drain()

    def remind(self, seconds: float) -> list[Effect]:
        self.pusher.now += seconds
        self.pusher.timeout(Remind())
        return [each for each in self.pusher.drain() if not isinstance(each, Later)]


def chunk(offset: int) -> Chunk:
    return Chunk(offset, 0, 1, "p", offset, PACKED)


def cast(next_: int, *chunks: Chunk, gossip: bool = False) -> Push:
    return Push("t", 1, next_, chunks, gossip, FENCED)


def test_topic_without_readers_is_not_pushed() -> None:
    leader = Leader()
    leader.put()
    assert leader.pusher.drain() == []


def test_root_gets_the_end_offset_and_then_new_messages() -> None:
    """NET-6: messages decided together are pushed together, once."""
    leader = Leader()
    leader.put()
    assert leader.hear(PushWanted(("t", "unknown"))) == [Send(ROOT, cast(1))]
    assert leader.hear(PushWanted(("t",))) == []
    leader.put()
    leader.put()
    assert leader.pusher.drain() == [Send(ME, PushDue())]
    assert leader.hear(PushDue()) == [Send(ROOT, cast(3, chunk(1), chunk(2)))]
    leader.put()
    assert leader.pusher.drain() == [Send(ME, PushDue())]
    assert leader.hear(PushDue()) == [Send(ROOT, cast(4, chunk(3)))]
    assert leader.pusher.pushed == 2


def test_pusher_ignores_push_due_messages_from_other_nodes() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.put()
    leader.pusher.drain()
    leader.pusher.receive(ROOT, PushDue())
    assert leader.pusher.drain() == []


def test_messages_are_pushed_after_the_leader_regains_its_lease() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.put()
    leader.sure = False
    leader.pusher.drain()
    assert leader.hear(PushDue()) == []
    leader.sure = True
    leader.put()
    leader.pusher.drain()
    assert leader.hear(PushDue()) == [Send(ROOT, cast(2, chunk(0), chunk(1)))]


def test_end_offset_is_resent_for_an_idle_topic_while_a_root_asks() -> None:
    """NET-6: otherwise a lost last message would go unnoticed."""
    leader = Leader()
    leader.pusher.start()
    assert leader.pusher.drain() == [Later(0.5, Remind())]
    leader.hear(PushWanted(("t",)))
    for seconds, said in (
        (0.375, []),
        (0.125, [Send(ROOT, cast(0))]),
        (0.375, []),  # the end was sent recently
        (3.125, [Send(ROOT, cast(0))]),
        (0.5, []),
    ):
        assert leader.remind(seconds) == said
    assert leader.pusher.targets == {}
    leader.pusher.timeout(Remind())
    assert leader.pusher.drain() == [Later(0.5, Remind())]


def test_root_that_asks_again_is_reminded_for_four_more_seconds() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.pusher.now = 3.0
    assert leader.hear(PushWanted(("t",))) == []
    assert leader.remind(4.0) == [Send(ROOT, cast(0))]
    assert leader.remind(0.5) == []


def test_recently_pushed_topic_gets_no_reminder() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.put()
    leader.pusher.now = 0.25
    leader.hear(PushDue())
    assert leader.remind(0.375) == []
    assert leader.remind(0.125) == [Send(ROOT, cast(1))]


def test_node_without_a_lease_sends_no_reminders() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.sure = False
    assert leader.remind(1.0) == []


def test_deleted_topic_gets_neither_pushes_nor_reminders() -> None:
    leader = Leader()
    leader.add("u")
    leader.hear(PushWanted(("t", "u")))
    for name in ("t", "u"):
        leader.put(name)
    leader.apply(do.DeleteTopic("t", 0))
    leader.pusher.drain()
    assert leader.hear(PushDue()) == [Send(ROOT, Push("u", 2, 1, (chunk(0),), fenced=3))]
    assert leader.remind(0.1) == []
    assert list(leader.pusher.targets) == ["u"]
    leader.apply(do.DeleteTopic("u", 0))
    leader.pusher.targets.clear()
    leader.add("v")  # no root requests this topic
    leader.apply(do.DeleteTopic("v", 0))
    leader.pusher.drain()
    assert leader.hear(PushDue()) == []


def test_new_root_gets_all_later_messages() -> None:
    """NET-6: the tree has a new root."""
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.put()
    leader.pusher.receive(OTHER, PushWanted(("unknown", "t")))
    assert leader.pusher.drain()[1:] == [Send(OTHER, cast(1))]
    leader.put()
    assert leader.hear(PushDue()) == [Send(OTHER, cast(2, chunk(1)))]


def test_push_is_limited_to_a_mebibyte_and_the_rest_follows_at_once() -> None:
    """NET-6: batches are not split."""
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    large = batch.encode([b"x" * (1 << 17)] * 3, timestamps=1)
    for _ in range(9):
        leader.put(packed=large, count=3)
    leader.pusher.drain()
    push_messages = [each.message for each in leader.hear(PushDue()) if isinstance(each, Send)]
    offsets = [
        [each.offset for each in cast.chunks] for cast in push_messages if isinstance(cast, Push)
    ]
    assert offsets == [[0, 3, 6], [9, 12, 15], [18, 21, 24]]
    leader.put(packed=large, count=3)
    leader.put()
    assert leader.hear(PushDue())
    leader.put()
    assert leader.hear(PushDue())[1:] == [Send(ROOT, cast(32, Chunk(31, 0, 1, "p", 31, PACKED)))]


def test_recreated_topic_is_pushed_from_its_beginning() -> None:
    """NET-6: offsets in the deleted topic are ignored."""
    leader = Leader()
    for _ in range(5):
        leader.put()
    leader.hear(PushWanted(("t",)))
    leader.apply(do.DeleteTopic("t", 0))
    leader.add("t")
    leader.put()
    leader.pusher.drain()
    assert leader.hear(PushDue()) == [Send(ROOT, Push("t", 2, 1, (chunk(0),), fenced=3))]


def test_gossip_topic_is_pushed_to_the_local_process_without_a_request() -> None:
    """NET-5"""
    leader = Leader()
    leader.apply(do.SetPolicy("t", 0, Policy(gossip=True)))
    leader.put()
    assert leader.pusher.drain() == [Send(ME, PushDue())]
    assert leader.hear(PushDue()) == [Send(LOOKUP, cast(1, chunk(0), gossip=True))]


def test_topic_that_changes_to_gossip_is_pushed_from_its_newest_batch() -> None:
    """NET-5: processes request older batches."""
    leader = Leader()
    leader.put()
    leader.put()
    leader.apply(do.SetPolicy("t", 0, Policy(gossip=True)))
    leader.put()
    leader.pusher.drain()
    assert leader.hear(PushDue()) == [Send(LOOKUP, cast(3, chunk(2), gossip=True))]


def test_tree_topic_that_changes_to_gossip_is_pushed_to_the_local_process() -> None:
    """NET-5"""
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.apply(do.SetPolicy("t", 0, Policy(gossip=True)))
    leader.put()
    leader.pusher.drain()
    leader.pusher.now = 3.0
    assert leader.hear(PushDue()) == [Send(LOOKUP, cast(1, chunk(0), gossip=True))]
    assert leader.remind(4.0) == [Send(LOOKUP, cast(1))]


def test_topic_without_a_root_does_not_stop_other_pushes() -> None:
    """NET-5"""
    leader = Leader()
    leader.add("u")
    leader.apply(do.SetPolicy("u", 0, Policy(gossip=True)))
    leader.hear(PushDue())
    leader.hear(PushWanted(("t",)))
    leader.put("t")
    leader.put("u")
    leader.lead(ME)
    leader.pusher.drain()
    cast_of_u = Push("u", 2, 1, (chunk(0),), gossip=True, fenced=3)
    assert leader.hear(PushDue()) == [Send(LOOKUP, cast_of_u)]


def test_follower_does_not_push_gossip_topics() -> None:
    leader = Leader()
    leader.apply(do.SetPolicy("t", 0, Policy(gossip=True)))
    leader.hear(PushDue())
    leader.lead(OTHER)
    leader.put()
    assert leader.pusher.drain() == []


def test_single_message_checks_at_most_a_thousand_readers() -> None:
    reader_ids = (ReaderId("u", "s", 1),) * 1001
    (answer,) = Leader().hear(CheckReaders(reader_ids))
    assert isinstance(answer, Send)
    assert isinstance(answer.message, ReadersChecked)
    assert len(answer.message.permits) == 1000


def test_unreadable_batch_is_neither_pushed_nor_used_to_fill_a_gap() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.put()
    leader.unreadable.add(len(leader.log) - 1)
    leader.service._recent.clear()
    leader.pusher.drain()
    assert leader.hear(PushDue()) == []
    scan = Scan(0, "t", do.FromOffset(0), -1, 1000, 1)
    assert leader.hear(Fill(scan)) == []


def test_gaps_are_filled_from_the_log() -> None:
    """NET-6"""
    leader = Leader()
    for _ in range(3):
        leader.put()
    (filled,) = leader.hear(Fill(Scan(0, "t", do.FromOffset(1), 2, 1000, 1)))
    assert isinstance(filled, Send)
    assert isinstance(filled.message, Filled)
    found = filled.message.scanned
    assert (found.topic_id, found.first, found.next, found.chunks) == (1, 0, 3, (chunk(1),))


def test_owner_answers_a_reader_check_with_a_permit_or_an_error() -> None:
    """SVC-3"""
    leader = Leader()
    leader.apply(do.Attach("t", "s", "inc-1"))
    leader.put()
    epoch = leader.service.machine.registry.topics["t"].subscriptions["s"].epoch
    good, stale, none = ReaderId("t", "s", epoch), ReaderId("t", "s", 1), ReaderId("u", "s", 1)
    assert leader.hear(CheckReaders((good, stale, none))) == [
        Send(
            ROOT,
            ReadersChecked(
                (
                    ReadPermit(good, 0, 0, 1, 0, 1, last_epoch=3),
                    ReadPermit(stale, 0, 0, 0, 0, 0, Fenced(epoch)),
                    ReadPermit(none, 0, 0, 0, 0, 0, NoSuchTopic("u")),
                )
            ),
        )
    ]


def test_pushes_and_fills_carry_the_last_fencing_epoch() -> None:
    """SVC-8: the epoch makes processes stop sending to fenced readers."""
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    fenced = []
    for command in (
        do.Attach("t", "s", "first"),  # the first reader
        do.Attach("t", "s", "second"),
        do.Attach("t", "s", "second"),  # the attach is repeated
        do.Detach("t", "s", 4, 0),
        do.Attach("t", "s", "third"),  # the second reader has detached
        do.Seek("t", "s", do.FromEarliest(), 0, "token"),
        do.Subscribe("t", "r", do.FromEarliest(), 0),
    ):
        leader.apply(command)
        leader.put()
        leader.pusher.drain()
        (casted,) = leader.hear(PushDue())
        (filled,) = leader.hear(Fill(Scan(0, "t", do.FromOffset(0), -1, 1000, 1)))
        assert isinstance(casted, Send)
        assert isinstance(casted.message, Push)
        assert isinstance(filled, Send)
        assert isinstance(filled.message, Filled)
        assert filled.message.fenced == casted.message.fenced
        fenced.append(casted.message.fenced)
    assert fenced == [FENCED, 4, 4, 4, 4, 6, 7]


def test_acks_from_the_tree_are_passed_to_the_service() -> None:
    """NET-6"""
    leader = Leader()
    acks = (do.Ack("t", "s", 1, 2), do.Ack("t", "r", 1, 3))
    assert leader.hear(AcksUp("t", acks)) == [Ask(acks[0]), Ask(acks[1])]


def test_replica_without_a_lease_does_not_answer_requests() -> None:
    leader = Leader()
    leader.hear(PushWanted(("t",)))
    leader.sure = False
    assert leader.hear(CheckReaders((ReaderId("t", "s", 1),))) == []
    leader.lead(OTHER)
    assert leader.pusher.targets == {}
    leader.sure = True
    assert leader.hear(PushWanted(("t",))) == []
