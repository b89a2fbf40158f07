"""The faults that the audit finds, and the meaning of each."""

from __future__ import annotations

from typing import Any, NamedTuple

# -- file faults: if a run has one, its messages are not checked --

FILES: dict[str, str] = {
    "empty file": "the file has no lines",
    "alien file": "no line of the file belongs to a trace",
    "no header": "an older version wrote the file; record the trace again",
    "unknown format": "a newer version wrote the file; audit it with that version",
    "cut head": "the first lines of the file are missing",
    "cut tail": "the last lines of the file are missing, or its process was killed",
    "missing line": "the line numbers have a gap",
    "repeated line": "an earlier line has this number or a higher one",
    "invalid line": "the line is not JSON, or its kind or its fields are wrong",
    "second header": "the file has another header after its first line",
    "lines after the end": "the file continues after its last line",
    "missing file": "a file of the run was not given to the audit",
    "file given twice": "two files are the same part of the same incarnation",
    "killed but complete": "a process was reported as killed, but its trace has an end",
}

# -- faults of messages --

STORED: dict[str, str] = {
    "never stored": "a put was not answered, and its message was not delivered",
    "never answered": "a message was delivered, but its put was not answered",
    "stored twice": "a message is stored at two offsets",
    "stored out of order": "a message is stored before an earlier message of its producer",
    "gap in a sequence": "a producer skipped a sequence number",
    "sequence used twice": "a producer put two messages with the same sequence number",
    "missing offset": "no message was stored or delivered at an offset between two known offsets",
    "two messages at one offset": "two messages were acknowledged with the same offset",
    "wrong message": "the delivered message is not the message that was stored at the offset",
    "readers disagree": "two deliveries at one offset have different messages",
    "message without a put": "a traced producer never put this message",
    "refused put is stored": "a put was refused, but its message was stored or delivered",
    "before put": "a message was stored or delivered before its put",
}
DELIVERED: dict[str, str] = {
    "lost": "a subscription never received a message that it should have received",
    "not redelivered": "a message should have been redelivered, but was not",
    "duplicated": "a message was delivered again without a request",
    "out of order": "a message was delivered after a later message",
    "unmarked redelivery": "a message was delivered again without the mark `redelivered`",
    "not owed": "a message before the start of the session was delivered",
    "dropped": "unread messages were dropped, but the topic's policy does not allow this",
    "cursor went back": "a session started before messages that were already acknowledged",
    "session without a start": "a line belongs to a session without an attach or a seek",
    "session started twice": "a session has a second attach or seek",
    "after session end": "a line follows the end of its session",
}
ACKNOWLEDGED: dict[str, str] = {
    "ack went back": "an ack is lower than an earlier ack in its session",
    "ack before delivery": "a message was acknowledged before it was delivered",
    "flushed before ack": "an ack was reported as stored, but was never sent",
    "nack after ack": "an acknowledged message was requested again",
    "nack before delivery": "a message was requested again before it was delivered",
}
WORKED: dict[str, str] = {
    "lost job": "a settled message was never done, and did not become a dead letter",
    "done twice": "a job had two effects",
    "done with an old token": "an effect was stored after that of a newer delivery",
    "two holders": "two workers got a message under the same token",
    "delivered too often": "a message had more deliveries than the maximum",
    "leased after its ack": "an acknowledged message has a lease with a newer token",
    "acknowledged twice": "the node stored two acknowledgements of a message",
    "dead after its ack": "an acknowledged message became a dead letter",
    "two dead letters": "a message has two dead letters",
}
MEANING = FILES | STORED | DELIVERED | ACKNOWLEDGED | WORKED

# The columns of a fault: its name, the positions of the lines that prove it, the first offset, and
# the number of messages.
ROW = ("fault", "at", "other", "offset", "messages")


class Line(NamedTuple):
    """A line in a file that proves a fault."""

    file: str
    line: int | None = None


class Fault(NamedTuple):
    """A fault, with the lines that prove it and the names of its topic, reader and producer."""

    fault: str
    run: str | None
    lines: list[Line]
    about: dict[str, Any]

    def fields(self) -> dict[str, Any]:
        proof = [each._asdict() for each in self.lines]
        return {"fault": self.fault, "run": self.run, **self.about, "lines": proof}

    def __str__(self) -> str:
        about = ", ".join(f"{name} {value}" for name, value in self.about.items())
        proof = ", ".join(
            each.file if each.line is None else f"{each.file}:{each.line}" for each in self.lines
        )
        return f"{about} ({proof})" if about else proof
