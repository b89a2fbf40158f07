"""Test when a durable client compacts its outbox."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.client.session.client import OUTBOX_BYTES, READ_AHEAD, ClientSession
from oncecast.client.session.records import ClientState, Named, Queued, Tick
from oncecast.kernel.protocol import Append, Effect, Later, NodeId, Snapshot, Trim, Watch

ME, NODE = NodeId("client/me"), NodeId("node")
NAMED = Append(Named("p", "inc"), 1)
TIDIED = [Snapshot(ClientState("p", "inc", ()), 1), Trim("client", 2)]


def made_with(*, durable: bool = True, outbox_bytes: int = OUTBOX_BYTES) -> ClientSession:
    return ClientSession(
        ME,
        Random(1),
        node=NODE,
        producer="p",
        incarnation="inc",
        durable=durable,
        outbox_bytes=outbox_bytes,
    )


def started(*, durable: bool = True) -> ClientSession:
    made = made_with(durable=durable, outbox_bytes=100)
    made.start()
    assert made.drain() == [*([NAMED] if durable else []), Watch(NODE)]
    return made


def kept(effects: list[Effect]) -> list[Effect]:
    return [each for each in effects if not isinstance(each, Later)]


def test_restarted_client_uses_the_name_in_its_state_directory() -> None:
    """SVC-8"""
    for record in (Named("q", "first incarnation"), ClientState("q", "first incarnation", ())):
        made = made_with()
        made.restore(record)
        made.start()
        assert made.drain() == [Watch(NODE)]
        assert (made.producer, made.identity.directory_id) == ("q", "first incarnation")


def test_session_has_default_limits_and_is_not_durable() -> None:
    assert (READ_AHEAD, OUTBOX_BYTES) == (16_384, 4 << 20)
    made = ClientSession(ME, Random(1), node=NODE, producer="p", incarnation="inc")
    assert not made.identity.durable


@pytest.mark.parametrize(("settled", "tidied"), [(130, []), (131, TIDIED)])
def test_outbox_is_compacted_when_most_of_it_is_settled(settled: int, tidied: list[Effect]) -> None:
    """SVC-12: the limit is 100 bytes plus four times the unsettled bytes."""
    made = started()
    for _ in range(2):
        made._outbox.wrote(settled)
        made._outbox.settled(settled)
        assert kept(made.drain()) == []
        made._outbox.wrote(10)
        assert kept(made.drain()) == tidied
        made._outbox.settled(10)
        made._outbox.tidy()
        made.drain()


@pytest.mark.parametrize(("settled", "tidied"), [(530, False), (531, True)])
def test_restored_batches_count_as_unsettled(settled: int, tidied: bool) -> None:
    """SVC-12: 100 of the 110 bytes were written by an earlier process."""
    made = made_with(outbox_bytes=100)
    made.restore(Named("p", "inc"))
    made.restore(Queued("t", 0, 1, 0, bytes(100)))
    made.start()
    made._outbox.wrote(settled)
    made._outbox.settled(settled)
    made.drain()
    made._outbox.wrote(10)
    assert bool(made.drain()) == tidied


def test_idle_outbox_is_compacted_after_half_a_second() -> None:
    """SVC-12"""
    made = started()
    for _ in range(2):
        made._outbox.wrote(10)
        made._outbox.settled(5)
        made._outbox.settled(5)
        assert made.drain() == [Later(0.5, Tick())]
        made.now += 0.5
        made.timeout(Tick())
        assert made.drain() == TIDIED


def test_client_without_a_state_directory_does_not_compact() -> None:
    made = started(durable=False)
    made._outbox.settled(5)
    assert made.drain() == []


def test_timer_is_reset_only_for_an_earlier_deadline() -> None:
    made = started()
    for at in (3.0, 3.0, 4.0, 2.0):
        made._alarm.due(at)
    assert made.drain() == [Later(3.0, Tick()), Later(2.0, Tick())]
    made.now = 5.0
    made._alarm.due(1.0)
    assert made.drain() == [Later(0.0, Tick())]
