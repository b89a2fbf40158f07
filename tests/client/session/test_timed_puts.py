"""A session sends the times of a put, and keeps them in its outbox (WRK-5)."""

from __future__ import annotations

from oncecast.client.session.local import NotStored, Produce, Stored
from oncecast.client.session.records import Queued
from oncecast.kernel.protocol import Emit
from oncecast.wire import commands as do
from oncecast.wire import errors, results
from oncecast.wire.timing import Timing
from tests.client.session.test_client_producing import A, B, commands, opening, opens, put
from tests.client.session.test_producing_exactly import next_process, putting

LATE = Timing(delay_us=5_000_000)


def timed(sequence: int, batch: bytes, epoch: int = 7) -> do.TimedPut:
    return do.TimedPut("t", "p", epoch, sequence, 1, len(batch), 0, batch, LATE)


def test_put_with_a_delay_is_a_timed_put() -> None:
    """WRK-5: other puts are sent as before."""
    lone = putting(durable=True)
    lone.ask(Produce(2, "t", 1, B, LATE))
    assert lone.records == [Queued("t", 1, 1, 0, B, LATE)]
    assert commands(lone) == [timed(1, B)]


def test_delayed_put_has_no_offset_yet() -> None:
    """WRK-5: nor does the answer to its copy."""
    for answer, kept in (
        (results.Appended(-1, 1, kept=True), True),
        (results.Already(-1, 1), None),
    ):
        lone = putting()
        lone.ask(Produce(2, "t", 1, B, LATE))
        lone.answer(lone.call, answer)
        assert Emit(Stored(2, -1, kept)) in lone.outputs


def test_restored_put_keeps_its_delay() -> None:
    """WRK-5 SVC-2: the next process with this outbox sends it again."""
    lone = next_process(Queued("t", 0, 1, 0, A, LATE), Queued("t", 1, 1, 0, B))
    lone.answer(opens(lone), opening(8, 0, 1))
    assert commands(lone)[-2:] == [timed(0, A, epoch=8), put(1, 1, B, epoch=8)]


def test_delayed_put_is_refused_below_its_feature_level() -> None:
    """OPS-2: the batches after it are put."""
    lone = putting()
    lone.answer(lone.call, results.Appended(0, 1, kept=True))
    delayed = lone.ask(Produce(2, "t", 1, B, LATE)).call
    lone.ask(Produce(3, "t", 1, A))
    lone.answer(delayed, errors.LevelTooLow(4, 3))
    assert Emit(NotStored(2, errors.LevelTooLow(4, 3))) in lone.outputs
    lone.answer(opens(lone), opening(8, 1, 1))
    assert commands(lone)[-1] == put(1, 1, A, epoch=8)
