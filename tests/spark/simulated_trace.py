"""Build an audit trace from the client history of a simulation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from oncecast.history.operation import History, Operation, cut

Line = dict[str, Any]
SAID = ("again", "ack", "leave")  # these operations count without an answer


def trace_of(history: History) -> bytes:
    """Return the trace of a history.

    Subscriptions that were moved or have an unanswered call are omitted.
    """
    return Conversion(history).text()


class Conversion:
    def __init__(self, history: History) -> None:
        self._history = sorted(history, key=lambda each: each.call)
        self._events: list[tuple[float, Line]] = []
        self._sequences: Counter[tuple[str, str, int]] = Counter()
        self._messages: dict[tuple[str, int, bytes], tuple[str, int]] = {}
        self._sessions: dict[str, int] = {}
        self._doubtful = {
            (each.topic, each.subscription)
            for each in history
            if each.kind in ("seek", "moved")
            or (each.kind in ("subscribe", "unsubscribe", "delete") and each.returned is None)
        }
        topics = {each.topic for each in history}
        self._topic_ids = {
            topic: sorted({each.topic_id for each in history if each.topic == topic} - {0})
            for topic in topics
        }

    def text(self) -> bytes:
        for each in self._history:
            if each.kind == "put":
                self._put(each)
            elif each.kind == "publish" and each.done and each.kept:
                for offset in range(each.offset, each.offset + each.count):
                    for topic_id in self._topic_ids[each.topic][-1:]:
                        other = {"producer": "other", "sequence": offset, "offset": offset}
                        self._add(each, "stored", each.returned, other, topic_id)
            elif each.policy is not None and each.policy.drop_unread:
                for topic_id in self._topic_ids[each.topic]:
                    self._add(each, "create", 0.0, {"drop_unread": True}, topic_id)
        for each in self._history:
            if each.subscription and (each.done or each.kind in SAID):
                self._read(each)
        return self._written()

    def _written(self) -> bytes:
        who = {"format": 1, "run": "simulated", "writer": "all", "incarnation": "1", "part": 0}
        lines = [{"kind": "begin", "time": 0.0, **who}]
        lines += [
            {"time": time, **fields}
            for time, fields in sorted(self._events, key=lambda row: row[0])
        ]
        lines.append({"kind": "end", "time": lines[-1]["time"], "more": False, "complete": False})
        numbered = [{"line": number, **each} for number, each in enumerate(lines, 1)]
        return b"".join(msgspec.json.encode(each) + b"\n" for each in numbered)

    def _add(
        self, asked: Operation, kind: str, time: float | None, fields: Line, topic_id: int = 0
    ) -> None:
        assert time is not None
        generation = topic_id or asked.topic_id
        line = {"kind": kind, "topic": asked.topic, "generation": generation, **fields}
        self._events.append((time, line))

    def _put(self, asked: Operation) -> None:
        if asked.refused:
            return
        sure = asked.done and asked.topic_id
        for topic_id in [asked.topic_id] if sure else self._topic_ids[asked.topic]:
            producer = asked.client if sure else f"{asked.client}, unanswered"
            for place, digest in enumerate(cut(asked.digests)):
                who = (asked.topic, producer, topic_id)
                sequence = self._sequences[who]
                message: Line = {"producer": producer, "sequence": sequence}
                self._sequences[who] += 1
                self._add(asked, "put", asked.call, message, topic_id)
                if sure and asked.offset >= 0 and asked.kept is not False:
                    known = (asked.topic, topic_id, digest)
                    self._messages[known] = (producer, sequence)
                    stored = {**message, "offset": asked.offset + place}
                    self._add(asked, "stored", asked.returned, stored, topic_id)
                else:
                    failed = {**message, "unknown": True}
                    self._add(asked, "failed", asked.returned or asked.call, failed, topic_id)

    def _read(self, each: Operation) -> None:
        name = (each.topic, each.subscription)
        if name in self._doubtful or (each.topic, "") in self._doubtful:
            return
        if not each.topic_id:
            return
        where: Line = {"subscription": each.subscription, "offset": each.offset}
        if each.reader:
            where["session"] = self._sessions.setdefault(each.reader, len(self._sessions))
        match each.kind:
            case "subscribe" | "unsubscribe":
                self._add(each, each.kind, each.returned, where)
            case "attach":
                kind = "attach" if each.start is None else "seek"
                self._add(each, kind, each.returned, where)
            case "get":
                self._got(each, where)
            case "skip":
                self._add(each, "skip", each.returned, {**where, "until": each.next})
            case "again":
                self._untake(each, each.upto)
                self._add(each, "nack", each.call, where)
            case "ack" if each.upto > 0:
                where["offset"] = each.upto - 1
                self._add(each, "ack", each.call, where)
                if each.done:
                    self._add(each, "flushed", each.returned, where)
            case "leave":
                self._untake(each, each.next)
                kind = "leave" if each.done else "fenced"
                self._add(each, kind, each.call, {**where, "offset": each.upto})
            case "end":
                self._add(each, "fenced", each.returned, where)
            case _:
                pass

    def _untake(self, each: Operation, until: int) -> None:
        """Remove messages that arrived, but that the application did not take."""
        session = self._sessions[each.reader]
        self._events = [
            (time, line)
            for time, line in self._events
            if line["kind"] != "delivery" or line["session"] != session or line["offset"] < until
        ]

    def _got(self, each: Operation, where: Line) -> None:
        for place, digest in enumerate(cut(each.digests)):
            offset = each.offset + place
            known = (each.topic, each.topic_id, digest)
            producer, sequence = self._messages.get(known, ("other", offset))
            message = {"producer": producer, "sequence": sequence, "offset": offset}
            marked = {"redelivered": place < each.marked}
            self._add(each, "delivery", each.returned, {**where, **message, **marked})
