"""Legal histories for the audit, and illegal ones with the faults that they contain.

Each case is a separate run. Its files are lists of lines, or bytes. The audit of all cases must
find
exactly the listed faults: pairs of a name and an offset.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

Line = dict[str, Any]
Files = dict[str, list[Line] | bytes]
Found = tuple[str, int | None]


class Case(NamedTuple):
    files: Files
    faults: tuple[Found, ...] = ()


# -- lines --


def line(kind: str, **fields: Any) -> Line:
    return {"kind": kind, "topic": "t", **fields}


def put(*sequences: int, by: str = "p", to: str = "t") -> list[Line]:
    return [line("put", topic=to, producer=by, sequence=each) for each in sequences]


def stored(sequence: int, offset: int | None = None, by: str = "p", to: str = "t") -> list[Line]:
    offset = sequence if offset is None else offset
    return [line("stored", topic=to, producer=by, sequence=sequence, offset=offset)]


def failed(sequence: int, *, unknown: bool) -> list[Line]:
    return [line("failed", producer="p", sequence=sequence, unknown=unknown)]


def message(*sequences: int, by: str = "p", to: str = "t") -> list[Line]:
    """Return the lines of messages that are stored at the offsets of their sequences."""
    return [row for at in sequences for row in (*put(at, by=by, to=to), *stored(at, by=by, to=to))]


def subscribe(offset: int, to: str = "s") -> list[Line]:
    return [line("subscribe", subscription=to, offset=offset)]


def unsubscribe(to: str = "s") -> list[Line]:
    return [line("unsubscribe", subscription=to)]


def of(
    session: int, kind: str, offset: int | None = None, to: str = "s", **more: Any
) -> list[Line]:
    at = {} if offset is None else {"offset": offset}
    return [line(kind, subscription=to, session=session, **at, **more)]


def attach(offset: int, session: int = 1, to: str = "s") -> list[Line]:
    return of(session, "attach", offset, to)


def got(*offsets: int, session: int = 1, to: str = "s", again: bool = False) -> list[Line]:
    return [row for each in offsets for row in got_as(each, each, session, to, again=again)]


def got_as(
    offset: int,
    sequence: int,
    session: int = 1,
    to: str = "s",
    *,
    again: bool = False,
    by: str = "p",
) -> list[Line]:
    what = {"producer": by, "sequence": sequence, "redelivered": again}
    return of(session, "delivery", offset, to, **what)


def ack(offset: int, session: int = 1) -> list[Line]:
    return of(session, "ack", offset)


def flushed(offset: int, session: int = 1) -> list[Line]:
    return of(session, "flushed", offset)


def nack(offset: int, session: int = 1) -> list[Line]:
    return of(session, "nack", offset)


def leave(offset: int, session: int = 1) -> list[Line]:
    return of(session, "leave", offset)


def seek(offset: int, session: int = 1) -> list[Line]:
    return of(session, "seek", offset)


def skip(offset: int, until: int, session: int = 1) -> list[Line]:
    return of(session, "skip", offset, until=until)


def create(*, drop_unread: bool = False) -> list[Line]:
    return [line("create", drop_unread=drop_unread)]


def share(offset: int = 0, *, most: int = 0, effects: bool = True) -> list[Line]:
    fields = {"offset": offset, "deliveries_max": most, "effects": effects}
    return [line("share", subscription="s", **fields)]


def lease(offset: int, token: int, session: int = 1, deliveries: int = 1) -> list[Line]:
    what: dict[str, Any] = {
        "producer": "p",
        "sequence": offset,
        "token": token,
        "deliveries": deliveries,
    }
    return of(session, "lease", offset, **what)


def accept(offset: int, token: int, session: int = 1) -> list[Line]:
    return of(session, "accept", offset, token=token)


def accepted(offset: int, token: int, session: int = 1) -> list[Line]:
    return of(session, "accepted", offset, token=token)


def effect(offset: int, token: int) -> list[Line]:
    return [line("effect", subscription="s", offset=offset, token=token)]


def letter(offset: int) -> list[Line]:
    return [line("letter", subscription="s", offset=offset, producer="p", sequence=offset)]


def settled(until: int) -> list[Line]:
    return [line("settled", subscription="s", offset=until)]


def job(offset: int, token: int, session: int = 1) -> list[Line]:
    """Return the lines of a job that is done."""
    return [
        *lease(offset, token, session),
        *effect(offset, token),
        *accept(offset, token, session),
        *accepted(offset, token, session),
    ]


def worked(*parts: list[Line], most: int = 0, until: int = 4, effects: bool = True) -> Files:
    """Return a run with a shared subscription to four messages."""
    whole = (share(most=most, effects=effects), message(0, 1, 2, 3), *parts, settled(until))
    return one(*whole)


def second(lines: list[Line]) -> list[Line]:
    """Return the lines for the second topic with this name."""
    return [{**each, "generation": 1} for each in lines]


def killed(writer: str = "one", incarnation: str = "i") -> list[Line]:
    return [{"kind": "killed", "writer": writer, "incarnation": incarnation}]


OPEN = [*subscribe(0), *attach(0)]  # the reader starts at the first message


# -- files --


def file(
    *parts: Iterable[Line],
    writer: str = "one",
    incarnation: str = "i",
    part: int = 0,
    more: bool = False,
    complete: bool = True,
    end: bool = True,
    start: float = 0.0,
    writers: tuple[str, ...] = (),
) -> list[Line]:
    """Return a whole file. The caller fills in its run."""
    begin: Line = {"kind": "begin", "format": 1, "writer": writer, "incarnation": incarnation}
    begin |= {"part": part, "writers": list(writers)}
    last: list[Line] = [{"kind": "end", "more": more, "complete": complete}] if end else []
    lines = [begin, *(each for part in parts for each in part), *last]
    return [{"line": at, "time": start + at, **each} for at, each in enumerate(lines, 1)]


def one(*parts: Iterable[Line], **options: Any) -> Files:
    return {"one.jsonl": file(*parts, **options)}


def without(lines: list[Line], *numbers: int) -> list[Line]:
    return [each for each in lines if each["line"] not in numbers]


def text(run: str, lines: list[Line] | bytes) -> bytes:
    """Return the bytes of a file, with its run in the header."""
    if isinstance(lines, bytes):
        return lines.replace(b"RUN", run.encode())
    named = [{**each, "run": run} if each["kind"] == "begin" else each for each in lines]
    return "".join(json.dumps(each) + "\n" for each in named).encode()


def encoded(lines: list[Line]) -> bytes:
    return text("RUN", lines)


GOOD = file(OPEN, message(0, 1, 2), got(0, 1, 2), ack(2))
HEADER = {name: GOOD[0][name] for name in GOOD[0] if name not in ("line", "time")}
WRITER = file(message(0, 1, 2), writer="w", incarnation="x")
READER = file(OPEN, got(0, 1, 2), writer="r", incarnation="y")


def again(*sessions: list[Line], first: int = 3) -> Files:
    """Return a run with four messages.

    The reader gets the first `first`, then `sessions` follow.
    """
    return one(OPEN, message(0, 1, 2, 3), got(*range(first)), *sessions)


def restarted(*lines: list[Line], before: list[Line], **options: Any) -> Files:
    """Return a run whose reader was killed after `before` and continued with `lines`."""
    return {
        "w.jsonl": file(message(0, 1, 2, 3), killed("r", "a"), writer="w", incarnation="w"),
        "r1.jsonl": file(OPEN, before, writer="r", incarnation="a", end=False, **options),
        "r2.jsonl": file(*lines, writer="r", incarnation="b", start=100.0),
    }


FAULTY: dict[str, Case] = {
    # -- the files --
    "a file is empty": Case({"one.jsonl": GOOD, "two.jsonl": b""}, (("empty file", None),)),
    "a file has another format": Case(
        {"one.jsonl": GOOD, "two.jsonl": b"name,age\nann,7\n"}, (("alien file", None),)
    ),
    "a file is JSON from another program": Case(
        {"one.jsonl": GOOD, "two.jsonl": b'{"level": "info"}\n'}, (("alien file", None),)
    ),
    "a file is binary": Case(
        {"one.jsonl": GOOD, "two.jsonl": bytes(range(128, 256))}, (("alien file", None),)
    ),
    "a trace from an older version has no header": Case(
        {"one.jsonl": [{"line": 0, "time": 1.0, **put(0)[0]}]}, (("no header", None),)
    ),
    "the first lines with the subscribe are missing": Case(
        {"one.jsonl": without(GOOD, 1, 2, 3)}, (("cut head", None),)
    ),
    "the header is missing and the lines are numbered again": Case(
        {"one.jsonl": [{**each, "line": each["line"] - 1} for each in GOOD[1:]]},
        (("cut head", None),),
    ),
    "the header is cut": Case(
        {"one.jsonl": encoded(GOOD).replace(b'"begin"', b'"beg', 1)}, (("invalid line", None),)
    ),
    "the tail is cut between two lines": Case(
        {"one.jsonl": without(GOOD, len(GOOD))}, (("cut tail", None),)
    ),
    "the tail is cut within a line": Case(
        {"one.jsonl": encoded(GOOD)[:-20]}, (("cut tail", None), ("invalid line", None))
    ),
    "a line is missing": Case({"one.jsonl": without(GOOD, 5)}, (("missing line", None),)),
    "a line is repeated": Case(
        {"one.jsonl": [*GOOD[:6], GOOD[5], *GOOD[6:]]}, (("repeated line", None),)
    ),
    "two lines are swapped": Case(
        {"one.jsonl": [*GOOD[:4], GOOD[5], GOOD[4], *GOOD[6:]]},
        (("missing line", None), ("repeated line", None)),
    ),
    "a line is not JSON": Case(
        {"one.jsonl": encoded(GOOD).replace(b'{"line": 5', b'["line": 5')},
        (("invalid line", None),),
    ),
    "a field has another type": Case(
        {"one.jsonl": file(OPEN, put(0), [line("stored", producer="p", sequence=0, offset="x")])},
        (("invalid line", None),),
    ),
    "a field is missing": Case(
        one(OPEN, [line("put", producer="p")]), (("invalid line", None),)
    ),
    "a line has an unknown kind": Case(one(OPEN, [line("puts")]), (("invalid line", None),)),
    "an offset is negative": Case(one(OPEN, ack(-2)), (("invalid line", None),)),
    "an empty line is in the middle": Case(
        {"one.jsonl": encoded(GOOD).replace(b'{"line": 5', b'\n{"line": 5')},
        (("invalid line", None),),
    ),
    "lines follow the end": Case(
        {"one.jsonl": [*GOOD, {"line": len(GOOD) + 1, "time": 99.0, **put(3)[0]}]},
        (("lines after the end", None),),
    ),
    "a header is in the middle": Case(one(OPEN, [HEADER]), (("second header", None),)),
    "the format is newer": Case(
        {"one.jsonl": [{**GOOD[0], "format": 2}, *GOOD[1:]]}, (("unknown format", None),)
    ),
    "a subscriber's file is missing": Case(
        {"one.jsonl": file(message(0), writers=("one", "two"))}, (("missing file", None),)
    ),
    "a part in the middle is missing": Case(
        {
            "one.jsonl": file(OPEN, message(0), more=True),
            "two.jsonl": file(got(0), part=2),
        },
        (("missing file", None),),
    ),
    "the last part is missing": Case(
        {"one.jsonl": file(OPEN, message(0), more=True)}, (("missing file", None),)
    ),
    "the first part is missing": Case(
        {"one.jsonl": file(message(0), part=1)}, (("missing file", None),)
    ),
    "a file is given twice": Case(
        {"one.jsonl": GOOD, "copy.jsonl": GOOD}, (("file given twice", None),)
    ),
    "a process that continued is reported as killed": Case(
        {"one.jsonl": GOOD, "two.jsonl": file(killed(), writer="two", incarnation="j")},
        (("killed but complete", None),),
    ),
    # -- stored messages --
    "a put is never stored": Case(one(message(0), put(1)), (("never stored", None),)),
    "a put is delivered but never answered": Case(
        one(OPEN, message(0), put(1), got(0, 1)), (("never answered", 1),)
    ),
    "a message is stored twice": Case(
        one(put(0, 1), stored(0), stored(1), stored(1, 2)), (("stored twice", 2),)
    ),
    "a message is delivered at two offsets": Case(
        one(OPEN, message(0, 1), got(0, 1), got_as(2, 1)), (("stored twice", 2),)
    ),
    "messages of a producer are stored out of order": Case(
        one(put(0, 1, 2), stored(0), stored(1, 2), stored(2, 1)), (("stored out of order", 1),)
    ),
    "a sequence has a gap": Case(
        one(message(0), put(2), stored(2, 1)), (("gap in a sequence", None),)
    ),
    "a sequence is used twice": Case(
        one(message(0), put(0)), (("sequence used twice", 0),)
    ),
    "an offset is missing": Case(
        one(put(0, 1), stored(0), stored(1, 2)), (("missing offset", 1),)
    ),
    "an offset at the start of a stretch is missing": Case(
        one(message(0, 1, 2, 3), put(4), stored(4, 5)), (("missing offset", 4),)
    ),
    "more offsets are missing than puts are unknown": Case(
        one(put(0), stored(0), put(1), failed(1, unknown=True), put(2), stored(2, 3)),
        (("missing offset", 1), ("missing offset", 2)),
    ),
    "two messages have the same offset": Case(
        one(put(0, 1), stored(0), stored(1, 0)),
        (("two messages at one offset", 0),),
    ),
    "a delivery differs from the stored message": Case(
        one(OPEN, message(0, 1), message(0, by="q", to="u"), got(0), got_as(1, 7, by="q")),
        (("wrong message", 1),),
    ),
    "two readers see different messages": Case(
        one(
            OPEN, subscribe(0, "z"), attach(0, 2, "z"),
            got_as(0, 0, by="x"), got_as(0, 5, 2, "z", by="x"),
        ),
        (("readers disagree", 0),),
    ),
    "a message has no put": Case(
        one(OPEN, message(0), stored(1), got(0, 1)), (("message without a put", 1),)
    ),
    "a refused put is stored": Case(
        one(OPEN, message(0), put(1), failed(1, unknown=False), got(0, 1)),
        (("refused put is stored", 1),),
    ),
    "a message is delivered before its put": Case(
        one(OPEN, got(0), message(0)), (("before put", 0),)
    ),
    # -- delivered messages --
    "a message is lost": Case(again(got(3), first=2), (("lost", 2),)),
    "the first message is lost": Case(one(OPEN, message(0, 1), got(1)), (("lost", 0),)),
    "the last message is lost": Case(again(), (("lost", 3),)),
    "a reader gets nothing": Case(one(OPEN, message(0, 1)), (("lost", 0), ("lost", 1))),
    "one of two readers misses a message": Case(
        one(
            OPEN, subscribe(0, "z"), attach(0, 2, "z"), message(0, 1),
            got(0, 1), got(1, session=2, to="z"),
        ),
        (("lost", 0),),
    ),
    "a message is lost between two sessions": Case(
        again(ack(1), leave(2), attach(3, 2), got(3, session=2), first=2), (("lost", 2),)
    ),
    "a message is delivered twice": Case(again(got(2, 3)), (("duplicated", 2),)),
    "a message is delivered twice with a mark": Case(
        again(got(2, again=True), got(3)), (("duplicated", 2),)
    ),
    "several messages are delivered twice": Case(
        again(got(0, 1, 2, again=True), got(3)),
        (("duplicated", 0), ("duplicated", 1), ("duplicated", 2)),
    ),
    "a message arrives late, after a nack": Case(
        one(OPEN, message(0, 1, 2), got(0, 2), nack(0), got(0, again=True), got(1),
            got(2, again=True)),
        (("out of order", 1),),
    ),
    "a repeated subscribe skips messages": Case(
        again(ack(1), leave(2), subscribe(3), attach(3, 2), got(3, session=2), first=2),
        (("lost", 2),),
    ),
    "a newer reader gets unmarked messages": Case(
        {
            "w.jsonl": file(message(0, 1, 2), writer="w", incarnation="w"),
            "a.jsonl": file(OPEN, got(0, 1), of(1, "fenced"), writer="a", incarnation="a"),
            "b.jsonl": file(attach(0), got(0, 1, 2), writer="b", incarnation="b", start=100.0),
        },
        (("unmarked redelivery", 0),),
    ),
    "two messages are swapped": Case(
        one(OPEN, message(0, 1, 2, 3), got(0, 2, 1, 3)), (("out of order", 1),)
    ),
    "more messages are redelivered than requested": Case(
        again(nack(2), got(1, 2, again=True), got(3)), (("duplicated", 1),)
    ),
    "a redelivery is not marked": Case(
        again(nack(2), got(2, 3)), (("unmarked redelivery", 2),)
    ),
    "a redelivery after a reader left is not marked": Case(
        again(ack(1), leave(2), attach(2, 2), got(2, 3, session=2)),
        (("unmarked redelivery", 2),),
    ),
    "a requested message is not redelivered": Case(
        again(nack(1), got(2, again=True), got(3)), (("not redelivered", 1),)
    ),
    "an unacknowledged message is not redelivered": Case(
        again(ack(0), leave(1), attach(1, 2), got(2, session=2, again=True), got(3, session=2)),
        (("not redelivered", 1),),
    ),
    "a message before the start is delivered": Case(
        one(message(0, 1, 2), subscribe(1), attach(1), got(0, 1, 2)), (("not owed", 0),)
    ),
    "a session begins before its subscription": Case(
        one(message(0, 1), subscribe(1), attach(0), got(0, 1)), (("cursor went back", 0),)
    ),
    "acknowledged messages are redelivered": Case(
        again(ack(2), leave(3), attach(1, 2), got(1, 2, session=2, again=True), got(3, session=2)),
        (("cursor went back", 1), ("cursor went back", 2)),
    ),
    "stored acknowledgements are forgotten": Case(
        restarted(
            attach(1), got(1, again=True), got(2, 3),
            before=[*got(0, 1), *ack(1), *flushed(1)],
        ),
        (("cursor went back", 1),),
    ),
    "a killed reader skips messages": Case(
        restarted(attach(3), got(3), before=[*got(0, 1), *ack(1)]), (("lost", 2),)
    ),
    "a reader gets a message after it left": Case(
        again(ack(2), leave(3), got(3)), (("after session end", 3),)
    ),
    "a delivery has no session": Case(
        again(got(3), got(0, session=5)), (("session without a start", 0),)
    ),
    "a session starts twice": Case(
        again(ack(2), attach(3), got(3)), (("session started twice", 3),)
    ),
    "messages are dropped without a policy": Case(
        again(skip(2, 3), got(3), first=2), (("dropped", 2),)
    ),
    # -- acknowledged messages --
    "an ack goes back": Case(again(ack(2), ack(1), got(3)), (("ack went back", 1),)),
    "an ack precedes the delivery": Case(again(ack(3), got(3)), (("ack before delivery", 3),)),
    "an ack follows a nack": Case(
        again(nack(1), ack(2), got(1, 2, again=True), got(3)), (("ack before delivery", 2),)
    ),
    "an acknowledged message is requested again": Case(
        again(ack(2), nack(1), got(1, 2, again=True), got(3)), (("nack after ack", 1),)
    ),
    "a nack precedes the delivery": Case(again(nack(4), leave(0)), (("nack before delivery", 4),)),
    "an ack that was not sent is stored": Case(
        again(ack(1), flushed(2), got(3)), (("flushed before ack", 2),)
    ),
    # -- jobs --
    "a job is lost": Case(worked(job(0, 5), job(1, 6), job(3, 8)), (("lost job", 2),)),
    "the last jobs are lost": Case(
        worked(job(0, 5), job(1, 6)), (("lost job", 2), ("lost job", 3))
    ),
    "a job is acknowledged but has no effect": Case(
        worked(
            job(0, 5), job(1, 6), lease(2, 7), accept(2, 7), accepted(2, 7), job(3, 8)
        ),
        (("lost job", 2),),
    ),
    "a job without effects in the trace is lost": Case(
        worked(
            lease(0, 5), accept(0, 5), lease(1, 5), accept(1, 5), lease(2, 5), accept(3, 5),
            effects=False,
        ),
        (("lost job", 2),),
    ),
    "a job is done twice": Case(
        worked(job(0, 5), effect(0, 9), job(1, 6), until=2), (("done twice", 0),)
    ),
    "a job is done again with an older token": Case(
        worked(lease(0, 4), lease(0, 5, 2, 2), effect(0, 5), effect(0, 4), job(1, 6), until=2),
        (("done with an old token", 0),),
    ),
    "two workers hold a message under one token": Case(
        worked(lease(0, 5), lease(0, 5, 2), effect(0, 5), job(1, 6), until=2),
        (("two holders", 0),),
    ),
    "a message is delivered more often than the maximum": Case(
        worked(
            lease(0, 4), lease(0, 5, 1, 2), lease(0, 6, 1, 3), effect(0, 6), job(1, 6),
            until=2, most=2,
        ),
        (("delivered too often", 0),),
    ),
    "an old token settles a message that another worker holds": Case(
        worked(lease(0, 4), lease(0, 5, 2, 2), effect(0, 4), accepted(0, 4), job(1, 6), until=2),
        (("leased after its ack", 0),),
    ),
    "two workers acknowledge a message": Case(
        worked(lease(0, 5), effect(0, 5), accepted(0, 5), accepted(0, 5, 2), job(1, 6), until=2),
        (("acknowledged twice", 0),),
    ),
    "an acknowledged message becomes a dead letter": Case(
        worked(job(0, 5), letter(0), job(1, 6), until=2), (("dead after its ack", 0),)
    ),
    "a message has two dead letters": Case(
        worked(lease(0, 5), letter(0), letter(0), job(1, 6), until=2), (("two dead letters", 0),)
    ),
    "a worker gets another message than the one that was stored": Case(
        worked(
            [{**each, "sequence": 3} for each in lease(2, 5)], message(0, by="q", to="u"), until=0
        ),
        (("stored twice", 3), ("wrong message", 2)),
    ),
}  # fmt: skip


HISTORIES: dict[str, Files] = {
    # -- the files --
    "one reader gets everything": {"one.jsonl": GOOD},
    "a run without messages": one(),
    "writer and reader have separate files": {"w.jsonl": WRITER, "r.jsonl": READER},
    "all named writers are present": {
        "w.jsonl": file(message(0), writer="w", incarnation="x", writers=("w", "r")),
        "r.jsonl": file(OPEN, got(0), writer="r", incarnation="y"),
    },
    "one process writes two parts": {
        "b.jsonl": file(OPEN, message(0), got(0), more=True),
        "a.jsonl": file(message(1), got(1), part=1),
    },
    "a session spans three parts": {
        "c.jsonl": file(OPEN, message(0, 1), got(0), more=True),
        "b.jsonl": file(got(1), part=1, more=True),
        "a.jsonl": file(ack(1), part=2),
    },
    "a process runs twice": {
        "one.jsonl": file(message(0, 1)),
        "two.jsonl": file(message(2), incarnation="j", start=100.0),
    },
    "nodes are killed and started": one(
        OPEN, message(0), [{"kind": kind, "node": "n"} for kind in ("killed", "started")], got(0)
    ),
    "lines have additional fields": one([{**each, "color": "red"} for each in message(0)]),
    "a killed process leaves half a line": {
        "one.jsonl": encoded(file(OPEN, message(0), got(0), end=False)) + b'{"line": 9, "ti',
        "two.jsonl": file(killed(), writer="two", incarnation="j"),
    },
    "a killed process leaves a header only": {
        "one.jsonl": file(end=False),
        "two.jsonl": file(killed(), writer="two", incarnation="j"),
    },
    # -- stored messages --
    "two producers share a topic": one(
        put(0), put(0, by="q"), stored(0, 1), stored(0, 0, by="q"),
        put(1, by="q"), stored(1, 2, by="q"),
    ),
    "a producer uses two topics": one(message(0, 1), message(0, to="u")),
    "puts in flight are answered out of order": one(
        put(0, 1, 2), stored(2), stored(0), stored(1)
    ),
    "a producer continues an earlier run": one(put(7), stored(7, 3), put(8), stored(8, 4)),
    "the last puts of a killed producer are unknown": {
        "one.jsonl": file(message(0), put(1, 2), end=False),
        "two.jsonl": file(killed(), OPEN, got(0, 1), writer="two", incarnation="j"),
    },
    "an unread put of a killed producer has an offset": {
        "one.jsonl": file(message(0), put(1, 2), end=False),
        "two.jsonl": file(
            killed(), put(0, by="q"), stored(0, 3, by="q"), writer="two", incarnation="j"
        ),
    },
    "a killed producer repeats its last put": {
        "one.jsonl": file(message(0), put(1), end=False),
        "two.jsonl": file(killed(), put(1), stored(1), incarnation="j", start=100.0),
    },
    "a killed producer loses the end of its trace": {
        "one.jsonl": file(message(0), end=False),
        "two.jsonl": file(
            killed(), OPEN, got(0, 1), put(2), stored(2), got(2), incarnation="j", start=100.0
        ),
    },
    "an interrupted run leaves puts without an answer": one(message(0), put(1), complete=False),
    "a put with an unknown outcome is stored": one(
        OPEN, message(0), put(1), failed(1, unknown=True), got(0, 1)
    ),
    "a put with an unknown outcome is not stored": one(
        OPEN, message(0), put(1), failed(1, unknown=True), got(0)
    ),
    "a refused put is not stored": one(
        OPEN, message(0), put(1), failed(1, unknown=False), got(0)
    ),
    "another program puts into the topic": one(
        OPEN, put(0), stored(0), got(0), got_as(1, 40, by="x"), got_as(2, 42, by="x")
    ),
    "a topic is deleted and created again": one(
        OPEN, message(0, 1), got(0, 1), ack(1),
        second([*create(), *subscribe(0), *attach(0, 2), *message(0), *got(0, session=2)]),
    ),
    # -- delivered messages --
    "messages before the subscription are not owed": one(
        message(0, 1), subscribe(2), attach(2), message(2), got(2)
    ),
    "an earlier subscription continues": one(message(0, 1, 2), attach(1), got(1, 2)),
    "a subscription is never read": one(subscribe(0), message(0, 1)),
    "two subscriptions read at their own pace": one(
        OPEN, subscribe(0, "z"), attach(0, 2, "z"), message(0, 1),
        got(0), got(0, 1, session=2, to="z"),
        got(1),
    ),
    "a requested message is redelivered": again(nack(1), got(1, 2, again=True), got(3)),
    "a message is requested twice": again(
        nack(1), got(1, again=True), nack(1), got(1, 2, again=True), got(3)
    ),
    "more messages are marked than necessary": again(got(3, again=True)),
    "a reader that left is owed nothing": again(ack(0), leave(1)),
    "a reader that returned continues": again(
        ack(1), leave(2), attach(2, 2), got(2, session=2, again=True), got(3, session=2)
    ),
    "a reader that unsubscribed is owed nothing": again(ack(1), unsubscribe()),
    "messages dropped by an unsubscribe are not lost": again(
        unsubscribe(), subscribe(3), attach(3, 2), got(3, session=2), first=2
    ),
    "a new subscription reads everything again": again(
        unsubscribe(), subscribe(0), attach(0, 2), got(0, 1, 2, 3, session=2)
    ),
    "a repeated subscribe changes nothing": again(
        ack(1), leave(2), subscribe(2), attach(2, 2), got(2, session=2, again=True),
        got(3, session=2),
    ),
    "a seek goes back": again(seek(0, 2), got(0, 1, 2, 3, session=2)),
    "a seek goes forward": again(seek(3, 2), got(3, session=2), first=1),
    "a seek without a reader moves the cursor": again(
        ack(0), leave(1), [line("seek", subscription="s", offset=3)], attach(3, 2),
        got(3, session=2),
    ),
    "a policy drops unread messages": one(
        create(drop_unread=True), OPEN, message(0, 1, 2, 3), got(0), skip(1, 3), got(3)
    ),
    "a policy drops messages while the reader is away": one(
        create(drop_unread=True), OPEN, message(0, 1, 2, 3), got(0), ack(0), leave(1),
        attach(2, 2), got(2, 3, session=2),
    ),
    "a killed reader gets unacknowledged messages again": restarted(
        attach(1), got(1, again=True), got(2, 3), before=[*got(0, 1), *ack(0), *flushed(0)]
    ),
    "a killed reader forgets acks in flight": restarted(
        attach(0), got(0, 1, again=True), got(2, 3), before=[*got(0, 1), *ack(1)]
    ),
    "an ack in flight is stored after a repeated subscribe": restarted(
        subscribe(0), attach(2), got(2, 3), before=[*got(0, 1), *ack(1)]
    ),
    "a killed reader does not return": {
        "w.jsonl": file(message(0, 1), killed("r", "a"), writer="w", incarnation="w"),
        "r.jsonl": file(OPEN, got(0), writer="r", incarnation="a", end=False),
    },
    "an interrupted reader is owed nothing more": one(OPEN, message(0, 1), got(0), complete=False),
    "a newer reader takes over": {
        "w.jsonl": file(message(0, 1, 2, 3), writer="w", incarnation="w"),
        "a.jsonl": file(
            OPEN, got(0, 1), ack(0), got(2), of(1, "fenced"), writer="a", incarnation="a"
        ),
        "b.jsonl": file(
            attach(1), got(1, 2, again=True), got(3), writer="b", incarnation="b", start=100.0
        ),
    },
    "a reader learns late that a newer one took over": {
        "w.jsonl": file(message(0, 1, 2, 3), writer="w", incarnation="w"),
        "a.jsonl": file(
            OPEN, got(0, 1), ack(0), got(2), of(1, "fenced"),
            writer="a", incarnation="a", start=95.0,
        ),
        "b.jsonl": file(
            attach(1), got(1, 2, again=True), got(3), writer="b", incarnation="b", start=100.0
        ),
    },
    # -- acknowledged messages --
    "an ack is repeated": again(ack(2), ack(2), got(3), ack(3)),
    "acks are stored later": again(ack(0), flushed(0), ack(2), flushed(1), got(3)),
    "messages are acknowledged apart from their batches": again(ack(0), got(3), ack(1), ack(3)),
    # -- jobs --
    "jobs are done in any order": worked(job(2, 5), job(0, 6), job(3, 7, 2), job(1, 8, 2)),
    "a job is done by the second worker": worked(
        job(0, 5), job(1, 6), job(2, 7), lease(3, 8), lease(3, 9, 2, 2), effect(3, 9),
        accept(3, 8), accept(3, 9, 2), accepted(3, 9, 2), most=2,
    ),
    "a rejected message becomes a dead letter": worked(
        job(0, 5), job(1, 6), job(2, 7), lease(3, 8), letter(3)
    ),
    "a job has its effect, but its ack is lost and it becomes a dead letter": worked(
        job(0, 5), job(1, 6), job(2, 7), lease(3, 8), effect(3, 8), accept(3, 8), letter(3), most=1
    ),
    "jobs that are not settled yet are missing": worked(job(0, 5), job(2, 6), until=1),
    "a subscription starts after the first messages": one(
        share(2), message(0, 1, 2, 3), job(2, 5), job(3, 6), settled(4)
    ),
    "a run without effects in the trace needs only acks": worked(
        lease(0, 5), accept(0, 5), lease(1, 5), accept(1, 5), until=2, effects=False
    ),
    "a report of settled messages arrives late": worked(
        job(0, 5), settled(1), job(1, 6), settled(0), until=2
    ),
    "a killed worker has done a job": {
        "w.jsonl": file(
            share(), message(0), effect(0, 5), settled(1), killed("r", "a"),
            writer="w", incarnation="w",
        ),
        "r.jsonl": file(lease(0, 5), writer="r", incarnation="a", end=False),
    },
    "jobs of a subscription without a report": one(message(0), lease(0, 5), accept(0, 5)),
}  # fmt: skip
LEGAL = {name: Case(files) for name, files in HISTORIES.items()}
