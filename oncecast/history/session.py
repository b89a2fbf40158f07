"""Records the requests and events of a client session.

    history = SessionHistory(recorder, "ann", session)
        history.asked(request)      # for each request, before the session gets it
        history.heard(event)        # for each event that the application gets

A client that restarts keeps its name and gets another SessionHistory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.history.operation import (
    NO_SUCH_TOPIC,
    Operation,
    SubscriptionSeen,
    digests_of,
    digests_of_batch,
)
from oncecast.history.recorder import Recorder
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire import results
from oncecast.wire.errors import Refusal
from oncecast.wire.frames import Scanned, View
from oncecast.wire.message import Message

Finish = Callable[[Any], None]  # called with the outcome of a call


class Reading:
    """A reader's state as the session knows it (see `session.reading`)."""

    def __init__(self, name: str, attach: Operation) -> None:
        self.name = name
        self.attach: Operation | None = attach  # None once the reader is attached
        self.topic_id = self.epoch = 0
        self._expected = self._delivered = 0
        self.acked = 0

    def labels(self, subscription: str) -> dict[str, Any]:
        where = {"subscription": subscription, "reader": self.name}
        return {**where, "topic_id": self.topic_id, "epoch": self.epoch}

    def position(self, offset: int) -> None:
        self._expected = self._delivered = self.acked = offset

    def arrive(self, end: int) -> None:
        self._expected = end

    def skip(self, offset: int) -> None:
        self._expected = self._delivered = offset

    def again(self, offset: int) -> bool:
        if not self.acked <= offset < self._expected:
            return False
        self._expected = self._delivered = offset
        return True

    def want(self, delivered: int, ack: int) -> bool:
        """Update the delivered and acknowledged offsets. Return whether the latter advanced."""
        self._delivered = max(self._delivered, min(delivered, self._expected))
        before, self.acked = self.acked, max(self.acked, min(ack, self._delivered))
        return self.acked > before


class SessionHistory:
    """Records a session. If `deliveries` is False, the application reports messages to `took`."""

    def __init__(
        self, recorder: Recorder, client: str, session: ClientSession, *, deliveries: bool = True
    ) -> None:
        self._recorder, self._client, self._session = recorder, client, session
        self._deliveries = deliveries
        self._puts: dict[int, Operation] = {}
        self._calls: dict[int, Finish] = {}
        self._readings: dict[tuple[str, str], Reading] = {}
        self._last = 0
        self._confirmed: list[Operation] = []  # acks whose answers may still turn out to be void

    # -- requests --

    def asked(self, request: Value) -> None:
        self.settle()
        match request:
            case local.Produce(ticket, topic, _, batch):
                self._puts[ticket] = self._call("put", topic, digests=digests_of_batch(batch))
            case local.Do(ticket, command):
                self._do(ticket, command)
            case local.Show(ticket, topic) if topic:
                self._look(ticket, topic, request.subscriptions)
            case local.Survey(ticket, scan):
                asked = self._call("scan", scan.topic, start=scan.start)
                self._wait(ticket, asked, scan_fields)
            case local.Read():
                self._read(request)
            case local.Want() | local.Settle() | local.Again() | local.Move() | local.Leave():
                self._of_reader(request)
            case _:
                pass

    def _do(self, ticket: int, command: Value) -> None:
        call = self._call
        match command:
            case do.CreateTopic(topic, _, policy):
                self._wait(ticket, call("create", topic, policy=policy), created_fields)
            case do.SetPolicy(topic, _, policy):
                self._wait(ticket, call("policy", topic, policy=policy), already_fields)
            case do.DeleteTopic(topic):
                self._wait(ticket, call("delete", topic), already_fields)
            case do.Subscribe(topic, name, start):
                asked = call("subscribe", topic, subscription=name, start=start)
                self._wait(ticket, asked, subscribed_fields)
            case do.Unsubscribe(topic, name):
                self._wait(ticket, call("unsubscribe", topic, subscription=name), already_fields)
            case do.Seek(topic, name, start):
                asked = call("seek", topic, subscription=name, start=start)
                self._wait(ticket, asked, sought_fields)
            case do.Stage(source, number, part, topic, _, _, _, batch):
                batch_id = {"source": source, "number": number, "parts": (part,)}
                asked = call("stage", topic, **batch_id, digests=digests_of_batch(batch))
                self._wait(ticket, asked, already_fields)
            case do.PublishStaged(source, number, parts, _, topic):
                batch_id = {"source": source, "number": number, "parts": parts}
                self._publish(ticket, call("publish", topic, **batch_id))
            case do.DropStaged(source, number, topic):
                asked = call("drop", topic, source=source, number=number)
                self._wait(ticket, asked, no_fields)
            case _:
                pass

    def _publish(self, ticket: int, asked: Operation) -> None:
        """Record the publish as one operation for each topic that it wrote to."""

        def finish(outcome: Any) -> None:
            if not isinstance(outcome, results.Published) or not outcome.ranges:
                self._finish(asked, outcome, already_fields)
                return
            for number, each in enumerate(outcome.ranges):
                one = asked
                if number:
                    batch_id = (asked.source, asked.number, asked.parts)
                    one = self._call("publish", each.topic)
                    one.source, one.number, one.parts = batch_id
                    one.call = asked.call
                answer = {"topic": each.topic, "offset": each.offset, "count": each.count}
                self._recorder.returned(one, **answer, kept=each.kept, already=outcome.already)

        self._calls[ticket] = finish

    def _look(self, ticket: int, topic: str, subscriptions: bool) -> None:
        asked = self._call("look", topic)

        def finish(outcome: Any) -> None:
            if isinstance(outcome, View) and not outcome.topics:
                self._recorder.refused(asked, NO_SUCH_TOPIC)
            else:
                self._finish(asked, outcome, view_fields if subscriptions else topic_fields)

        self._calls[ticket] = finish

    # -- requests of readers --

    def _read(self, read: local.Read) -> None:
        self._last += 1
        reader = f"{self._session.identity.incarnation}.{self._last}"
        start = do.FromOffset(read.start_at) if read.start_at >= 0 else None
        asked = self._call(
            "attach", read.topic, subscription=read.subscription, reader=reader, start=start
        )
        self._readings[read.topic, read.subscription] = Reading(reader, asked)

    def _of_reader(
        self, request: local.Want | local.Settle | local.Again | local.Move | local.Leave
    ) -> None:
        reading = self._readings.get((request.topic, request.subscription))
        if reading is None:
            return  # the reader has ended, and the session answers without a node
        match request:
            case local.Again(_, _, offset, delivered):
                if reading.again(offset):
                    self._record_request(reading, "again", request, offset=offset, upto=delivered)
            case local.Move(ticket, _, _, start):
                asked = self._of(reading, "seek", request, start=start)
                self._wait(ticket, asked, sought_fields)
            case local.Want(_, _, delivered, ack):
                if reading.want(delivered, ack):
                    self._record_request(reading, "ack", request, upto=reading.acked)
            case local.Settle(ticket, _, _, delivered, ack):
                reading.want(delivered, ack)
                upto = min(ack, reading.acked)
                if not self._is_confirmed(request, upto):
                    self._settle(ticket, self._of(reading, "ack", request, upto=upto))
            case local.Leave(ticket, _, _, delivered, ack):
                reading.want(delivered, ack)
                fields = {"upto": reading.acked, "next": delivered}
                asked = self._of(reading, "leave", request, **fields)
                self._wait(ticket, asked, no_fields)
                del self._readings[request.topic, request.subscription]

    def _is_confirmed(self, settle: local.Settle, upto: int) -> bool:
        """Return whether the session answers locally because the node has confirmed the ack."""
        reader = self._session.readers.get((settle.topic, settle.subscription))
        return reader is not None and upto <= reader.confirmed

    def _settle(self, ticket: int, asked: Operation) -> None:
        def finish(outcome: Any) -> None:
            if isinstance(outcome, results.Acked):
                asked.offset = outcome.cursor
                self._confirmed.append(asked)
            else:
                self._finish(asked, outcome, no_fields)

        self._calls[ticket] = finish

    def settle(self) -> None:
        """Record the confirmed acks. Call this when no more events follow."""
        confirmed, self._confirmed = self._confirmed, []
        for ack in confirmed:
            self._recorder.returned(ack, offset=ack.offset)

    def _record_request(self, reading: Reading, kind: Any, request: Any, **asked: Any) -> None:
        labels = reading.labels(request.subscription)
        self._recorder.said(self._client, kind, request.topic, **labels, **asked)

    def _of(self, reading: Reading, kind: Any, request: Any, **asked: Any) -> Operation:
        return self._call(kind, request.topic, **reading.labels(request.subscription), **asked)

    # -- events --

    def heard(self, event: Value) -> None:
        if isinstance(event, local.Positioned):
            # A session that is moved confirms all acks itself, with its new position.
            self._confirmed = [each for each in self._confirmed if each.offset != event.offset]
        if not isinstance(event, local.Finished):
            self.settle()
        match event:
            case local.Stored(ticket, offset, kept):
                put = self._puts.pop(ticket, None)
                if put is not None:
                    flow = self._session.flows.get(put.topic)
                    topic_id = 0 if flow is None else flow.topic_id
                    self._recorder.returned(put, offset=offset, kept=kept, topic_id=topic_id)
            case local.NotStored(ticket, why):
                put = self._puts.pop(ticket, None)
                if put is not None:
                    self._recorder.refused(put, why.error.code)
            case local.Finished(ticket, outcome):
                self._answer(ticket, outcome)
            case local.Shown(ticket, view):
                self._answer(ticket, view)
            case local.Positioned() | local.Arrived() | local.Skipped() | local.Ended():
                reading = self._readings.get((event.topic, event.subscription))
                if reading is not None:
                    self._to_reader(reading, event)
            case _:
                pass

    def _answer(self, ticket: int, outcome: Any) -> None:
        finish = self._calls.pop(ticket, None)
        if finish is not None:
            finish(outcome)

    def _to_reader(
        self,
        reading: Reading,
        event: local.Positioned | local.Arrived | local.Skipped | local.Ended,
    ) -> None:
        match event:
            case local.Positioned(_, _, offset, end):
                self._positioned(reading, event, offset, end)
            case local.Arrived(_, _, messages, end):
                reading.arrive(messages[-1].offset + 1)
                if self._deliveries:
                    self._got(reading, event, messages, end)
            case local.Skipped(_, _, first, end):
                reading.skip(end)
                self._record_event(reading, "skip", event, offset=first, next=end)
            case local.Ended(_, _, why):
                del self._readings[event.topic, event.subscription]
                if reading.attach is not None:
                    self._recorder.refused(reading.attach, why.error.code)
                else:
                    self._record_event(reading, "end", event, error=why.error.code)

    def took(self, topic: str, subscription: str, messages: list[Message]) -> None:
        """Record messages that the application has received."""
        reading = self._readings.get((topic, subscription))
        if reading is not None:
            self._got(reading, local.Want(topic, subscription, 0, 0), messages, -1)

    def _got(self, reading: Reading, where: Any, messages: list[Message], end: int) -> None:
        for some in runs(messages):
            marked = sum(each.redelivered for each in some)
            fields = {"offset": some[0].offset, "next": end, "marked": marked}
            self._record_event(reading, "get", where, **fields, digests=digests_of(some))

    def _positioned(self, reading: Reading, event: Any, offset: int, end: int) -> None:
        reading.position(offset)
        reader = self._session.readers.get((event.topic, event.subscription))
        reading.epoch = 0 if reader is None else reader.epoch
        if reading.attach is None:
            self._record_event(reading, "moved", event, offset=offset)
            return
        reading.topic_id = 0 if reader is None else reader.topic_id
        labels = {"topic_id": reading.topic_id, "epoch": reading.epoch}
        self._recorder.returned(reading.attach, offset=offset, next=end, **labels)
        reading.attach = None

    def _record_event(self, reading: Reading, kind: Any, event: Any, **fields: Any) -> None:
        labels = reading.labels(event.subscription)
        self._recorder.heard(self._client, kind, event.topic, **labels, **fields)

    # -- calls --

    def _call(self, kind: Any, topic: str, **asked: Any) -> Operation:
        return self._recorder.call(self._client, kind, topic, **asked)

    def _wait(self, ticket: int, asked: Operation, fields: Callable[[Any], dict[str, Any]]) -> None:
        self._calls[ticket] = lambda outcome: self._finish(asked, outcome, fields)

    def _finish(
        self, asked: Operation, outcome: Any, fields: Callable[[Any], dict[str, Any]]
    ) -> None:
        if isinstance(outcome, Refusal):
            self._recorder.refused(asked, outcome.error.code)
        elif not isinstance(outcome, local.NoAnswer):
            self._recorder.returned(asked, **fields(outcome))


def runs(messages: list[Message]) -> list[list[Message]]:
    """Split messages at missing offsets, and before a marked message after an unmarked one."""
    found: list[list[Message]] = []
    for message in messages:
        last = found[-1][-1] if found else None
        if (
            last is None
            or message.offset != last.offset + 1
            or (message.redelivered and not last.redelivered)
        ):
            found.append([])
        found[-1].append(message)
    return found


def no_fields(_: Any) -> dict[str, Any]:
    return {}


def already_fields(outcome: Any) -> dict[str, Any]:
    return {"already": outcome.already}


def created_fields(outcome: results.TopicCreated) -> dict[str, Any]:
    return {"topic_id": outcome.topic_id, "already": outcome.already}


def subscribed_fields(outcome: results.Subscribed) -> dict[str, Any]:
    return {"offset": outcome.cursor, "topic_id": outcome.topic_id, "already": outcome.already}


def sought_fields(outcome: results.Sought) -> dict[str, Any]:
    return {"offset": outcome.cursor, "epoch": outcome.epoch, "already": outcome.already}


def topic_fields(view: View) -> dict[str, Any]:
    (topic,) = view.topics
    where = {"topic_id": topic.id, "first": topic.first, "next": topic.next}
    return {**where, "policy": topic.policy}


def view_fields(view: View) -> dict[str, Any]:
    (topic,) = view.topics
    seen = [SubscriptionSeen(e.name, e.cursor, e.lag, e.epoch) for e in topic.subscriptions]
    return {**topic_fields(view), "views": tuple(seen)}


def scan_fields(found: Scanned) -> dict[str, Any]:
    where = {"topic_id": found.topic_id, "first": found.first, "next": found.next}
    parts = [digests_of_batch(chunk.batch, chunk.skip, chunk.count) for chunk in found.chunks]
    return {**where, "offset": found.offset, "digests": b"".join(parts)}
