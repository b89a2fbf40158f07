"""A scan can wait for the next message (KAF-1)."""

from __future__ import annotations

import pytest

from oncecast.broker import scan_waits
from oncecast.broker.events import AccessChanged, Changed, ScanWaitOver
from oncecast.broker.scanning import Scanner
from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.replication.events import LeaderChanged
from oncecast.wire.commands import FromEarliest, FromOffset
from oncecast.wire.frames import Elsewhere, Scan, Scanned
from tests.broker.desk import ANN, BOB, ME, producing, put
from tests.broker.test_scanning import ALL, filled, scanner

AT_END = Scan(1, "topic", FromOffset(3), bytes=ALL, wait_ms=500)


def sent(node: Scanner) -> list[tuple[NodeId, object]]:
    return [(each.to, each.message) for each in node.drain() if isinstance(each, Send)]


def test_scan_at_the_end_waits_for_the_next_message() -> None:
    """KAF-1: a long poll"""
    desk = filled()
    node = scanner(desk)
    node.receive(ANN, AT_END)
    assert node.drain() == [Later(0.5, ScanWaitOver())]
    node.observe(Changed("other"))
    assert sent(node) == []
    desk.call(BOB, put(producing(desk), 3, b"new"))
    node.observe(Changed("topic"))
    ((to, found),) = sent(node)
    assert to == ANN
    assert isinstance(found, Scanned)
    assert (found.offset, found.next, len(found.chunks)) == (3, 4, 1)
    node.observe(Changed("topic"))
    assert sent(node) == []


def test_scan_without_a_message_is_answered_when_its_wait_expires() -> None:
    node = scanner(filled())
    node.receive(ANN, AT_END)
    node.now = 0.2
    node.receive(BOB, AT_END)
    assert sent(node) == []
    node.now = 0.5
    node.timeout(ScanWaitOver())
    effects = node.drain()
    (timer,) = [each for each in effects if isinstance(each, Later)]
    assert timer.timer == ScanWaitOver()
    assert timer.delay == pytest.approx(0.2)
    assert [each.to for each in effects if isinstance(each, Send)] == [ANN]
    node.now = 0.7
    node.timeout(ScanWaitOver())
    ((to, found),) = sent(node)
    assert (to, found) == (BOB, Scanned(1, 1, 0, 3, 3, ()))


@pytest.mark.parametrize(
    "scan",
    [
        Scan(1, "topic", FromOffset(2), bytes=ALL, wait_ms=500),
        Scan(1, "topic", FromOffset(9), bytes=ALL, wait_ms=500),
        Scan(1, "topic", FromEarliest(), bytes=ALL, wait_ms=500),
        Scan(1, "topic", FromOffset(3), 3, bytes=ALL, wait_ms=500),
        Scan(1, "topic", FromOffset(3), bytes=ALL),
    ],
)
def test_scan_with_an_immediate_answer_does_not_wait(scan: Scan) -> None:
    node = scanner(filled())
    node.receive(ANN, scan)
    assert len(sent(node)) == 1


def test_scan_keeps_waiting_until_a_message_reaches_its_start() -> None:
    node = scanner(filled())
    node.receive(ANN, AT_END)
    node.drain()
    node.observe(Changed("topic"))  # for example, a subscription has changed
    assert sent(node) == []
    node.now = 0.5
    node.timeout(ScanWaitOver())
    assert len(sent(node)) == 1


def test_repeated_scan_waits_once() -> None:
    desk = filled()
    node = scanner(desk)
    node.receive(ANN, AT_END)
    node.receive(ANN, AT_END)
    desk.call(BOB, put(producing(desk), 3, b"new"))
    node.observe(Changed("topic"))
    assert len(sent(node)) == 1


def test_waiting_scan_is_redirected_when_the_leader_changes() -> None:
    """KAF-3: fail-over"""
    desk = filled()
    node = scanner(desk)
    node.receive(ANN, AT_END)
    desk.service.observe(LeaderChanged(NodeId("other")))
    node.observe(LeaderChanged(NodeId("other")))
    assert sent(node) == [(ANN, Elsewhere("other", (ME,)))]


def test_waiting_scans_are_dropped_under_new_rules_and_with_their_client() -> None:
    """SEC-2: the client asks again under the new rules."""
    desk = filled()
    node = scanner(desk)
    node.receive(ANN, AT_END)
    node.observe(AccessChanged())
    node.receive(BOB, AT_END)
    node.down(BOB)
    desk.call(BOB, put(producing(desk), 3, b"new"))
    node.observe(Changed("topic"))
    assert sent(node) == []


def test_number_of_waiting_scans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-3: further scans are answered at once."""
    monkeypatch.setattr(scan_waits, "WAITING_OF_CLIENT_MAX", 2)
    monkeypatch.setattr(scan_waits, "WAITING_MAX", 3)
    node = scanner(filled())
    for id in range(3):
        node.receive(ANN, Scan(id, "topic", FromOffset(3), wait_ms=500))
    assert [to for to, _ in sent(node)] == [ANN]
    for id in range(3):
        node.receive(BOB, Scan(id, "topic", FromOffset(3), wait_ms=500))
    assert [to for to, _ in sent(node)] == [BOB, BOB]


def test_wait_is_bounded() -> None:
    node = scanner(filled())
    node.receive(ANN, Scan(1, "topic", FromOffset(3), wait_ms=10**12))
    assert node.drain() == [Later(scan_waits.WAIT_MAX, ScanWaitOver())]
