"""Push delivery: a process receives each of a topic's messages once for all its readers (NET-6).

A client can read from any process. The process joins the topic's tree, or listens to gossip. It
keeps recent messages, and sends them to each reader in order and within its credit. Gaps in the
offsets reveal lost messages, which the process requests from the owner, once for all readers. Push
is therefore a faster view of the same log, with the same guarantees.

Only the owner knows a reader's cursor, and whether the reader may continue. The process asks the
owner from time to time, and before it sends messages that were put after a reader was fenced. Acks
travel up the tree and are merged on the way.

Needs Scribe, Plumtree and the roster. Sends Delivery and FlowEnded to clients.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, assert_never

import msgspec

from oncecast.broker.delivery import Flow, Flows, Window
from oncecast.broker.guard import PrincipalOf, anonymous
from oncecast.dht.identifiers import key_of_topic
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import JoinTree, LeaveTree, Multicast, Multicasted
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import Broadcast, MessageId, Received
from oncecast.ring.channel import Channel
from oncecast.ring.push_messages import (
    READERS_MAX,
    TOPICS_MAX,
    UNKNOWN,
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
from oncecast.ring.roster import Roster
from oncecast.wire import batch
from oncecast.wire.commands import Ack, FromOffset
from oncecast.wire.errors import Denied, Fenced, NotHere
from oncecast.wire.frames import Delivery, FlowEnded, Scan, Tune

TURN = 0.25
ACKS_AFTER = 0.02  # seconds to collect acks for the same topic before they are sent
CHECK_EVERY = 2.0
# Seconds of silence after which the tree may be broken, so this process asks the owner.
SILENT_AFTER = 1.5
ANSWER_WITHIN = 0.5
FILL_BYTES = 1 << 20
DELIVERY_BYTES = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Push).decode


class Turn(Value):
    """Timer: ask for pushes, gaps and permits."""


class FlushAcks(Value):
    """Timer: send the collected acks up the tree."""


class Relay(Protocol):
    name = "relay"
    Message: ClassVar = Tune | Push | Filled | ReadersChecked | AcksUp
    Observed: ClassVar = Multicasted | Received
    Timer: ClassVar = Turn | FlushAcks

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        roster: Roster,
        scribe: Scribe,
        incarnation: str = "",  # distinguishes broadcasts before and after a restart
        flows_max: int = 10_000,
        window_bytes: int = 8 << 20,  # maximum bytes in flight to one client
        channel_bytes: int = 8 << 20,  # maximum bytes kept per topic
        # Returns the principal of a client; None if all clients are anonymous.
        principal_of: PrincipalOf | None = None,
    ) -> None:
        super().__init__(me, rng)
        self._principal_of = principal_of or anonymous
        self._roster, self._scribe = roster, scribe
        self._origin, self._broadcasts = NodeId(f"{me}#{incarnation}"), 0
        self._flows_max, self.window_bytes = flows_max, window_bytes
        self.channel_bytes = channel_bytes
        self.flows = Flows()
        self._windows: dict[NodeId, Window] = {}
        self._permits: dict[Flow, ReadPermit] = {}
        self._acks: dict[Flow, Ack] = {}  # the last ack of each flow
        self.channels: dict[str, Channel] = {}
        # By topic: the acks to send to the parent.
        self._up: dict[str, dict[tuple[str, int], Ack]] = {}
        self.filled = 0  # number of gaps filled so far

    def start(self) -> None:
        self.later(TURN, Turn())

    # -- inputs --

    def receive(
        self, sender: NodeId, message: Tune | Push | Filled | ReadersChecked | AcksUp
    ) -> None:
        match message:
            case Tune():
                self._tune(sender, message)
            case Push():
                if self._owns(sender, message.topic):
                    self._push(message)
            case Filled():
                if self._owns(sender, message.topic):
                    self._fill(message)
            case ReadersChecked(permits):
                permits = tuple(
                    each for each in permits if self._owns(sender, each.reader_id.topic)
                )
                for permit in permits:
                    self._checked(permit)
                for topic in dict.fromkeys(permit.reader_id.topic for permit in permits):
                    if topic in self.channels:
                        self._serve_all(self.channels[topic])
            case AcksUp(topic, acks):
                for ack in acks[:READERS_MAX]:
                    self._gather(topic, ack)
            case _:
                assert_never(message)

    def observe(self, event: Multicasted | Received) -> None:
        try:
            push = _decode(event.payload)
        except (ValueError, RecursionError):
            return  # not a message of this protocol
        self._heard(push)

    def timeout(self, timer: Turn | FlushAcks) -> None:
        if isinstance(timer, FlushAcks):
            self._flush_acks()
            return
        self.later(TURN, timer)
        self._ask_for_pushes()
        doubtful: dict[NodeId, list[ReaderId]] = {}
        for name, channel in list(self.channels.items()):
            flows = self.flows.of_topic(name)
            if not flows:
                del self.channels[name]
                self.ask(LeaveTree(name))
                continue
            self._ask_for_gaps(channel)
            self._renew_permits(channel)
            silent = self.now > channel.heard + SILENT_AFTER
            if silent or self.now >= channel.checked + CHECK_EVERY:
                channel.checked = channel.heard = self.now
                leader = self._leader(name)
                doubtful.setdefault(leader, []).extend(map(self._reader_id, flows))
        for leader, reader_ids in doubtful.items():
            self._check_readers(leader, reader_ids)

    def down(self, client: NodeId) -> None:
        self._windows.pop(client, None)
        for flow in self.flows.of_client(client):
            self._drop(flow)

    def _leader(self, topic: str) -> NodeId:
        owner = self._roster.owner(key_of_topic(topic))
        return owner.leader if owner is not None else NodeId("")

    def _owns(self, sender: NodeId, topic: str) -> bool:
        """Return whether the sender is a replica of the group that owns the topic."""
        owner = self._roster.owner(key_of_topic(topic))
        return owner is not None and sender in owner.nodes

    def _send(self, to: NodeId, message: Value) -> None:
        if to:
            self.send(to, message)

    # -- readers --

    def _tune(self, client: NodeId, tune: Tune) -> None:
        fetch = tune.fetch
        flow = self.flows.find(fetch.topic, fetch.subscription)
        if flow is not None and (flow.client, flow.epoch) != (client, fetch.epoch):
            if flow.epoch > fetch.epoch:
                where = (fetch.topic, fetch.subscription, fetch.epoch)
                self.send(client, FlowEnded(*where, Fenced(flow.epoch)))
                return
            where = (flow.topic, flow.subscription, flow.epoch)
            self.send(flow.client, FlowEnded(*where, Fenced(fetch.epoch)))
            self._drop(flow)
            flow = None
        if flow is None:
            if len(self.flows) >= self._flows_max:
                return  # too many readers; the client will read from the owner
            flow = self._new_flow(client, tune)
        flow.renew(fetch.offset, fetch.messages, fetch.bytes)
        ack = Ack(fetch.topic, fetch.subscription, fetch.epoch, fetch.ack)
        if fetch.ack > 0 and self._acks.get(flow) != ack:
            self._acks[flow] = ack
            permit = self._permits.get(flow)
            if permit is not None and permit.may_ack:  # otherwise wait for a permit from the owner
                self._gather(fetch.topic, ack)
        for waiting in (flow, *flow.window.starved):
            self._serve(waiting)

    def _new_flow(self, client: NodeId, tune: Tune) -> Flow:
        fetch = tune.fetch
        if client not in self._windows:
            self._windows[client] = Window()
            self.watch(client)
        flow = Flow(client, self._windows[client], fetch.topic, fetch.subscription, fetch.epoch)
        self.flows.add(flow)
        if fetch.topic not in self.channels:
            self.channels[fetch.topic] = Channel(fetch.topic, self.channel_bytes, self.now)
            self.ask(JoinTree(fetch.topic))
        self._check_readers(self._leader(fetch.topic), [self._reader_id(flow)])
        return flow

    def _drop(self, flow: Flow) -> None:
        self.flows.drop(flow)
        self._permits.pop(flow, None)
        self._acks.pop(flow, None)

    def _reader_id(self, flow: Flow) -> ReaderId:
        principal = self._principal_of(flow.client)
        return ReaderId(flow.topic, flow.subscription, flow.epoch, principal)

    def _check_readers(self, leader: NodeId, reader_ids: list[ReaderId]) -> None:
        for at in range(0, len(reader_ids), READERS_MAX):
            self._send(leader, CheckReaders(tuple(reader_ids[at : at + READERS_MAX])))

    def _renew_permits(self, channel: Channel) -> None:
        """Ask the owner about readers whose permit may no longer be valid."""
        if channel.checking and self.now < channel.checked + ANSWER_WITHIN:
            return
        flows = [
            flow
            for flow in self.flows.of_topic(channel.topic)
            if flow in self._permits and not self._may_read(flow, channel)
        ]
        channel.checking = bool(flows)
        if flows:
            channel.checked = self.now
            self._check_readers(self._leader(channel.topic), list(map(self._reader_id, flows)))

    def _may_read(self, flow: Flow, channel: Channel) -> bool:
        """Return whether the reader's permit is still valid.

        A permit ends when a reader of the topic is fenced. It also ends when the owner drops
        messages that this reader is waiting for, because the reader may have unsubscribed.
        """
        permit = self._permits.get(flow)
        if permit is None or permit.topic_id != channel.topic_id:
            return False
        if flow.next < channel.first and flow.next >= permit.first:
            return False
        return permit.last_epoch == UNKNOWN or permit.last_epoch >= channel.fenced

    def _checked(self, permit: ReadPermit) -> None:
        reader_id = permit.reader_id
        flow = self.flows.find(reader_id.topic, reader_id.subscription)
        if flow is None or flow.epoch != reader_id.epoch:
            return
        if isinstance(permit.why, NotHere):
            return  # the directory will soon contain the new owner
        ack = self._acks.get(flow)
        acked = ack is not None and ack.upto > permit.cursor
        why = Denied() if acked and not permit.may_ack else permit.why
        if why is not None:
            where = (flow.topic, flow.subscription, flow.epoch)
            self.send(flow.client, FlowEnded(*where, why))
            self._drop(flow)
            return
        known, channel = self._permits.get(flow), self.channels[flow.topic]
        if known is None or permit.last_epoch == UNKNOWN or permit.last_epoch >= known.last_epoch:
            self._permits[flow] = permit
        if known is None or permit.last_epoch > known.last_epoch or self._may_read(flow, channel):
            channel.checking = False  # in other cases, the same check would repeat immediately
        if ack is not None and acked:
            self._gather(flow.topic, ack)  # resend the ack, because it may have been lost
        channel.reaches(permit.topic_id, permit.next)

    def _serve_all(self, channel: Channel) -> None:
        for flow in self.flows.of_topic(channel.topic):
            self._serve(flow)
        channel.trim()  # after serving, because a filled gap may be older than all kept batches
        self._ask_for_gaps(channel)
        self._renew_permits(channel)

    def _serve(self, flow: Flow) -> None:
        """Send the reader all messages that the channel has, within its credit."""
        channel = self.channels[flow.topic]
        where = (flow.topic, flow.subscription, flow.epoch)
        while flow.next < channel.next and has_credit(flow) and self._may_read(flow, channel):
            permit = self._permits[flow]
            budget = self.window_bytes - flow.window.outstanding
            if budget <= 0:
                flow.window.starved[flow] = None
                return
            flow.window.starved.pop(flow, None)
            if flow.next < channel.first:  # the owner has dropped the next messages
                first = min(permit.first, channel.first)
                self.send(flow.client, Delivery(*where, (), permit.suspect_below, first))
                flow.sent(first, 0)
                continue
            budget = min(budget, flow.bytes_left, DELIVERY_BYTES)
            chunks = channel.chunks(flow.next, flow.messages_left, budget)
            if not chunks:
                return
            self.send(flow.client, Delivery(*where, chunks, permit.suspect_below, channel.next))
            for chunk in chunks:
                flow.sent(chunk.offset + chunk.count, batch.opened_bytes(chunk.batch))

    # -- new messages --

    def _push(self, push: Push) -> None:
        """Forward a leader's push to the tree, or broadcast it if the topic uses gossip."""
        payload = _encode(push)
        if push.gossip:
            self._broadcasts += 1
            self.ask(Broadcast(MessageId(self._origin, self._broadcasts), payload))
            self._heard(push)
        else:
            self.ask(Multicast(push.topic, payload))

    def _heard(self, push: Push) -> None:
        channel = self.channels.get(push.topic)
        if channel is not None:
            channel.heard = self.now
            channel.reaches(push.topic_id, push.next, push.fenced)
            channel.add(push.topic_id, push.chunks)
            self._serve_all(channel)

    # -- gaps --

    def _ask_for_gaps(self, channel: Channel) -> None:
        """Ask the owner for the first missing message that a reader is waiting for."""
        if self.now < channel.asked + ANSWER_WITHIN and channel.asking:
            return
        wanted = [
            flow.next
            for flow in self.flows.of_topic(channel.topic)
            if self._may_read(flow, channel) and channel.lacks(flow.next) and self._could_take(flow)
        ]
        if wanted:
            channel.asking, channel.asked = True, self.now
            offset = min(wanted)
            until = channel.gap_end(offset)
            start = FromOffset(offset)
            scan = Scan(0, channel.topic, start, until, FILL_BYTES, channel.topic_id)
            self._send(self._leader(channel.topic), Fill(scan))

    def _could_take(self, flow: Flow) -> bool:
        """Return whether the reader has credit. If not, a filled gap could be dropped unsent."""
        return has_credit(flow) and flow.window.outstanding < self.window_bytes

    def _fill(self, filled: Filled) -> None:
        channel, scanned = self.channels.get(filled.topic), filled.scanned
        if channel is None or channel.topic_id != scanned.topic_id:
            return
        self.filled += 1
        channel.asking = False
        channel.first = max(channel.first, scanned.first)
        channel.reaches(scanned.topic_id, scanned.next, filled.fenced)
        channel.add(scanned.topic_id, scanned.chunks)
        self._serve_all(channel)

    # -- the root --

    def _ask_for_pushes(self) -> None:
        """Ask leaders to push the topics whose trees have this process as root."""
        topics: dict[NodeId, list[str]] = {}
        for tree in self._scribe.trees.values():
            if tree.root and tree.needed:
                topics.setdefault(self._leader(tree.topic), []).append(tree.topic)
        for leader, names in topics.items():
            for at in range(0, len(names), TOPICS_MAX):
                self._send(leader, PushWanted(tuple(names[at : at + TOPICS_MAX])))

    # -- acks --

    def _gather(self, topic: str, ack: Ack) -> None:
        if not self._up:
            self.later(ACKS_AFTER, FlushAcks())
        acks = self._up.setdefault(topic, {})
        known = acks.get((ack.subscription, ack.epoch))
        if known is None or ack.upto > known.upto:
            acks[ack.subscription, ack.epoch] = ack

    def _flush_acks(self) -> None:
        up, self._up = self._up, {}
        for topic, acks in up.items():
            tree = self._scribe.trees.get(topic)
            parent = tree.parent if tree is not None and not tree.root else None
            some = list(acks.values())
            for at in range(0, len(some), READERS_MAX):
                message = AcksUp(topic, tuple(some[at : at + READERS_MAX]))
                self._send(parent or self._leader(topic), message)


def has_credit(flow: Flow) -> bool:
    return flow.messages_left > 0 and flow.bytes_left > 0
