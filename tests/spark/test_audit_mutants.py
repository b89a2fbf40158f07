"""Remove one audit rule at a time, and check that a history detects it."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.spark.audit import job, reading, storing, working
from oncecast.spark.audit.files import Files
from oncecast.spark.audit.reading import Session, Subscription
from oncecast.spark.audit.rows import Check
from oncecast.spark.audit.storing import Message
from oncecast.spark.audit.working import Job, Shared
from tests.mutants import Detector, Mutant, Plant, assert_detected, replaced
from tests.spark.audit_cases import FAULTY, LEGAL
from tests.spark.test_audit import found, here

pytestmark = pytest.mark.mutants


def history(name: str) -> Detector:
    """Return a detector that audits one history."""

    def detector(seed: int) -> None:
        case = (FAULTY | LEGAL)[name]
        assert found(here(name, case)) == sorted(case.faults, key=str)

    detector.__name__ = name
    return detector


def in_check(check: str, field: str, owner: Any, name: str, text: str, replacement: str) -> Plant:
    """Return a mutant of a function that a check refers to."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        replaced(owner, name, text, replacement)(patch)
        whole: Check = getattr(job, check)
        patch.setattr(job, check, whole._replace(**{field: getattr(owner, name)}))

    return plant


RULES: dict[str, tuple[str, Plant]] = {
    "a gap between deliveries is remembered": (
        "a message is lost", replaced(Session, "_jump", "self.holes.append(hole)", "pass"),
    ),
    "a repeated delivery is a fault": (
        "a message is delivered twice", replaced(Session, "_again", "if known:", "if not known:"),
    ),
    "a late delivery fills its gap": (
        "two messages are swapped", replaced(Session, "_fill", "if low >= high:", "if True:"),
    ),
    "a redelivery in a session is marked": (
        "a redelivery is not marked",
        replaced(Session, "_deliver", "first < self.reached and not late", "False"),
    ),
    "a redelivery in a later session is marked": (
        "a redelivery after a reader left is not marked",
        replaced(Subscription, "read", "0 <= offset < self.seen", "False"),
    ),
    "a new subscription needs no marks": (
        "a new subscription reads everything again",
        replaced(Subscription, "move", "self.seen = 0", "pass"),
    ),
    "an ack follows its delivery": (
        "an ack precedes the delivery",
        replaced(Session, "_ack", "offset >= self.next", "offset > self.next"),
    ),
    "acks move forward": (
        "an ack goes back", replaced(Session, "_ack", "offset + 1 < self.acked", "False"),
    ),
    "a nack leaves acknowledged messages alone": (
        "an acknowledged message is requested again",
        replaced(Session, "_nack", "offset < self.acked", "False"),
    ),
    "the cursor keeps stored acks": (
        "stored acknowledgements are forgotten",
        replaced(Subscription, "resume", "offset < self.low", "False"),
    ),
    "the cursor does not pass unacknowledged messages": (
        "a message is lost between two sessions",
        replaced(Subscription, "resume", "offset > self.high", "False"),
    ),
    "acks of a killed reader may be lost": (
        "a killed reader forgets acks in flight",
        replaced(Subscription, "read", "settled if settled >= 0 else row.offset", "session.acked"),
    ),
    "an open reader must get the last message": (
        "the last message is lost",
        in_check("TOPICS", "rule", reading, "topic_rule", "if until < end:", "if False:"),
    ),
    "an interrupted reader is owed nothing": (
        "an interrupted reader is owed nothing more",
        in_check(
            "SUBSCRIPTIONS", "rule", reading, "subscription_rule",
            "certain and not session.ended", "not session.ended",
        ),
    ),
    "a policy may drop messages": (
        "a policy drops unread messages",
        in_check("TOPICS", "rule", reading, "topic_rule", "if not dropping:", "if True:"),
    ),
    "offsets have no gaps": (
        "an offset is missing",
        in_check("OFFSETS", "rule", storing, "offset_rule", "if offset != until:", "if first < 0:"),
    ),
    "unknown puts explain missing offsets": (
        "an unread put of a killed producer has an offset",
        in_check("TOPICS", "rule", reading, "topic_rule", "absent > unknown", "absent"),
    ),
    "only consecutive deliveries are merged": (
        "a message is lost",
        in_check(
            "SESSIONS", "squeeze", reading, "runs",
            'more[1:] &= columns["offset"][1:] == columns["until"][:-1]', "",
        ),
    ),
    "messages of a producer are stored in order": (
        "messages of a producer are stored out of order",
        in_check("PRODUCERS", "rule", storing, "producer_rule", "0 <= offset < highest", "False"),
    ),
    "a killed producer may skip a sequence": (
        "a killed producer loses the end of its trace",
        in_check(
            "PRODUCERS", "rule", storing, "producer_rule", "certain and message.certain", "True"
        ),
    ),
    "a refused put is not stored": (
        "a refused put is stored",
        replaced(Message, "verdict", "self.refused >= 0 and self.places", "False"),
    ),
    "a put has an answer": (
        "a put is never stored", replaced(Message, "verdict", "self.stored < 0", "False"),
    ),
    "a delivery shows the stored message": (
        "a delivery differs from the stored message",
        replaced(storing, "conflict", "elif answers:", "elif False:"),
    ),
    "line numbers have no gap": (
        "a line is missing",
        replaced(Files, "_number", "piece.line > highest + 1 + between", "False"),
    ),
    "an invalid line counts in the line numbers": (
        "a line is not JSON",
        replaced(Files, "_number", "number - last - 1", "0"),
    ),
    "a file has an end": (
        "the tail is cut between two lines",
        replaced(Files, "_check", "file.end is None and not gone", "False"),
    ),
    "one token has one holder": (
        "two workers hold a message under one token",
        replaced(Job, "faults", "one.session != two.session", "False"),
    ),
    "deliveries are limited": (
        "a message is delivered more often than the maximum",
        replaced(Job, "faults", "each.flag > deliveries_max", "False"),
    ),
    "no lease follows an ack": (
        "an old token settles a message that another worker holds",
        replaced(Job, "_after_ack", "by_token[-1].number > settled[0].number", "False"),
    ),
    "an effect with an old token is worse than a second effect": (
        "a job is done again with an older token",
        replaced(Job, "_effects", "two.number < one.number", "False"),
    ),
    "only settled messages are owed": (
        "jobs that are not settled yet are missing",
        replaced(Shared, "undone", "min(until, self.settled)", "until"),
    ),
    "the last messages are owed, too": (
        "the last jobs are lost",
        in_check(
            "JOBS", "rule", working, "job_rule",
            "yield from shared.undone(shared.settled, where)", "pass",
        ),
    ),
    "all writers have a file": (
        "a subscriber's file is missing",
        replaced(Files, "_check_incarnations", "writer not in", "False and writer not in"),
    ),
}  # fmt: skip
MUTANTS = [Mutant(rule, plant, history(name), 1) for rule, (name, plant) in RULES.items()]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_missing_rule_is_detected(mutant: Mutant) -> None:
    """PIPE-4"""
    assert_detected(mutant)
