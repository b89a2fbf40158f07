"""The search decides histories with many unanswered puts in a few steps, and correctly."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.history import History, check
from oncecast.history.check import parts
from oncecast.history.partition import Problem
from oncecast.history.search import Outcome, search
from oncecast.history.topic_model import UNKNOWN, Log, TopicModel
from tests.history.making import (
    SUB,
    created,
    deleted,
    digests,
    got,
    look,
    lost_put,
    op,
    put,
    scanned,
    subscribed,
    unsubscribed,
)
from tests.history.test_search import brute_force, is_an_order, spoiled

FEW_STEPS = 20_000

# A storm of the scenario "paxos" with 5 nodes and seed 501138: the numbers of messages of the
# unanswered puts, and the offsets and numbers of the answered ones. All messages fill one log.
UNANSWERED = "3121211333123213321111133331332111113211121133311131222221321"
ANSWERED = (
    "8:3 11:1 12:1 19:2 21:2 23:3 26:1 38:3 42:3 45:1 57:1 58:2 60:3 74:1 75:1 76:1 77:3 84:1 85:3 "
    "88:1 91:1 92:1 93:1 97:1 98:2 100:1 101:1 113:2 115:1 116:3 119:3 124:3 127:2 129:1 130:3 "
    "133:1 138:1 146:1 153:2 161:3 171:1 174:1 175:3 178:2 185:2 190:1 193:1 194:3 197:1 198:1 "
    "199:3 203:1 204:1 205:2"
)


def values(name: object, count: int) -> list[str]:
    return [f"{name}.{number}" for number in range(count)]


def storm() -> History:
    """Return a history in which one client's unanswered puts must fill all gaps in the log."""
    history = [SUB, subscribed(0, 1, subscription="other"), look(300, 301, 207)]
    for number, digit in enumerate(UNANSWERED):
        history.append(lost_put(2 + number / 100, *values(number, int(digit)), client="bob"))
    for each in ANSWERED.split():
        offset, count = map(int, each.split(":"))
        time = 100 + offset / 1000
        history.append(put(50, time, offset, *values(f"at {offset}", count), client=each))
    return history


def two_clients(seed: int, never: int) -> History:
    """Return a history in which two clients put in turn, and the last puts are never stored."""
    rng, end = Random(seed), 0
    history = [SUB]
    for number in range(60 + never):
        client, count = rng.choice(("bob", "eve")), rng.randint(1, 3)
        time = 2 + number / 1000 - (client == "eve")
        history.append(lost_put(time, *values(number, count), client=client))
        if number >= 60:
            continue
        end += count
        if rng.random() < 0.5:
            count, time = rng.randint(1, 3), end / 1000
            history.append(put(50 + time, 100 + time, end, *values(f"at {end}", count)))
            end += count
    return [*history, look(200, 201, end)]


def test_repeatable_unanswered_puts_fill_all_gaps() -> None:
    """While a subscription ends, the topic may end too, and puts are repeated in the next one."""
    ends = unsubscribed(90, 99, subscription="other")
    verdict = check([*storm(), ends], steps_max=FEW_STEPS)
    assert verdict.ok, verdict


@pytest.mark.parametrize("never", [0, 10])
@pytest.mark.parametrize("seed", range(3))
def test_unanswered_puts_from_two_clients_fill_all_gaps(seed: int, never: int) -> None:
    verdict = check(two_clients(seed, never), steps_max=FEW_STEPS)
    assert verdict.ok, verdict


def test_put_of_a_delivered_message_cannot_fill_another_gap() -> None:
    """Eve's puts fill the gap. Bob's puts were delivered after it, in another order."""
    history = [SUB, subscribed(0, 1, subscription="other")]
    history.append(unsubscribed(20, 99, subscription="other"))
    for number, count in enumerate((3, 3, 2, 2)):
        history.append(lost_put(2, *values(f"eve {number}", count), client="eve"))
    for number in range(20):
        history.append(lost_put(3, f"bob {number}", client="bob"))
        history.append(got(100 + number, 10 + number, f"bob {19 - number}"))
    verdict = check([*history, look(10, 11, 4), look(12, 13, 10)], steps_max=FEW_STEPS)
    assert verdict.ok, verdict


def test_only_an_unanswered_put_creates_the_epoch_of_an_answered_put() -> None:
    """Bob's put would be repeated in its own epoch, so it cannot replace Eve's put."""
    puts = [
        put(2, 30, 3, "a", "b", "c", kept=False, client="bob"),
        lost_put(3, "x", "y", "z", client="eve"),
    ]
    ends = unsubscribed(4, 40, subscription="other", already=True)
    verdict = check([*puts, ends])
    assert verdict.ok, verdict


def test_message_put_twice_may_be_seen_once() -> None:
    """One of them fills the gap, although the same message was seen elsewhere."""
    puts = [lost_put(2, "x", client="bob"), lost_put(2, "x", client="eve")]
    history = [SUB, *puts, put(4, 9, 1, "a"), got(20, 2, "x"), look(10, 11, 3)]
    assert check(history).ok
    assert check([history[0], *history[2:]]).broken


def test_log_equality_ignores_how_appends_were_grouped() -> None:
    a, b, c = (digests(value) for value in "abc")
    log = Log(bytearray())
    whole = log.append(a + b + UNKNOWN + c)
    assert whole == log.append(a).append(b + UNKNOWN).append(c)
    assert whole != log.append(b + a + UNKNOWN + c)
    assert whole != log.append(a + b + UNKNOWN + UNKNOWN + c)
    assert log.lengthened(2) == log.append(UNKNOWN).append(UNKNOWN)


def test_earlier_put_by_the_same_client_does_not_fill_the_gap() -> None:
    """Bob's second put is in the log, so his first put cannot come after it."""
    puts = [lost_put(2, "x", client="bob"), lost_put(3, "y", "z", client="bob")]
    history = [SUB, *puts, put(4, 9, 2, "a"), put(5, 9, 4, "b"), look(10, 11, 5)]
    assert check(history[:4]).ok
    assert check(history).broken
    assert check([*history, lost_put(4, "w", client="bob")]).ok


# -- brute force --


class Storm:
    """Draws a small history in which most puts have no answer."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.epoch, self.time = 1, 2.0
        self.log: list[str] = []
        self.history: History = [SUB]

    def run(self) -> History:
        rng = self.rng
        kinds = ["lost"] * 5 + ["put"] * 3 + ["look", "get", "scan", "end"]
        for number, kind in enumerate(rng.choices(kinds, k=rng.randint(6, 9))):
            self.time += 1
            self._act(kind, f"m{number}")
        self.time += 20
        self.history.append(look(self.time, self.time + 1, len(self.log), topic_id=self.epoch))
        return spoiled(self.history, rng)

    def _act(self, kind: str, name: str) -> None:
        rng, log, now, epoch = self.rng, self.log, self.time, self.epoch
        messages = values(name, rng.randint(1, 2))
        client = rng.choice(("bob", "eve"))
        if kind == "lost":
            self.history.append(lost_put(now - rng.choice((0, 0.9, 4.8)), *messages, client=client))
            log += messages * (rng.random() < 0.7)
        elif kind == "put":
            late = now + rng.choice((0.5, 3, 9))
            self.history.append(put(now, late, len(log), *messages, topic_id=epoch, client=client))
            log += messages
        elif kind == "look":
            self.history.append(look(now, now + 0.5, len(log), topic_id=epoch))
        elif kind == "get" and log:
            at = rng.randrange(len(log))
            self.history.append(got(now, at, *log[at : at + 2], topic_id=epoch))
        elif kind == "scan" and log:
            at = rng.randrange(len(log))
            shown = log[at : at + 2]
            self.history.append(scanned(now, now + 0.5, len(log), at, *shown, topic_id=epoch))
        elif kind == "end":
            self._end()

    def _end(self) -> None:
        """End the topic, or only its second subscription."""
        now = self.time
        if self.rng.random() < 0.5:
            end = op("unsubscribe", now, now + 0.5, subscription="other", already=True)
            self.history.append(end)
            return
        self.epoch += 1
        self.log.clear()
        again = created(now + 0.6, now + 0.7, topic_id=self.epoch)
        self.history += [deleted(now, now + 0.5), again]


def topic_problem(seed: int, *, narrow: bool = True) -> Problem:
    history = Storm(seed).run()
    history.sort(key=lambda each: each.call)
    return next(parts("topic", history)).problem(narrow=narrow)


@given(st.integers(0, 1 << 32))
def test_search_with_unanswered_puts_agrees_with_brute_force(seed: int) -> None:
    problem = topic_problem(seed)
    found = search(problem.items, problem.initial, problem.model)
    assert found.outcome is not Outcome.UNDECIDED
    if found.outcome is Outcome.LINEARIZABLE:
        assert is_an_order(problem, found.order)
    else:
        assert not brute_force(topic_problem(seed, narrow=False))


@given(st.integers(0, 1 << 32))
def test_known_message_offsets_do_not_change_the_verdict(seed: int) -> None:
    problem = topic_problem(seed)
    before = search(problem.items, problem.initial, problem.model)
    assert isinstance(problem.model, TopicModel)
    for shown in problem.model.shown.values():
        shown.places.clear()
    assert search(problem.items, problem.initial, problem.model).outcome is before.outcome


def test_small_storms_include_legal_and_illegal_histories() -> None:
    """Otherwise the test above would prove little."""
    kinds = {True: 0, False: 0}
    for seed in range(100):
        problem = topic_problem(seed)
        found = search(problem.items, problem.initial, problem.model)
        lost = sum(not item.must for item in problem.items)
        kinds[found.outcome is Outcome.LINEARIZABLE] += lost > 2
    assert min(kinds.values()) > 10, kinds
