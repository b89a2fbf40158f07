"""A stored put is not reported as a failure when the batch limit is lowered before its retry."""

from __future__ import annotations

import pytest

from oncecast.client.session import local
from oncecast.wire.errors import Overloaded, TooLarge
from oncecast.wire.frames import Call
from oncecast.wire.limits import Limits
from oncecast.wire.results import Already
from tests.broker.desk import BOB, Desk, producing, put, reading
from tests.client.session.lone import Lone, packed

LARGE, SMALL = b"x" * 1000, b"y"
LOWERED = (Limits(batch_bytes_max=500), Limits(batch_messages_max=1))


def lowered(limits: Limits) -> None:
    """Lose the answers to two puts, then lower a limit. Both puts are reported as stored."""
    desk = Desk()
    reading(desk)
    lone = Lone().start().ask(local.Produce(1, "topic", 2, packed(LARGE, LARGE)))
    (opened,) = desk.send(BOB, lone.call)
    puts = lone.hear(opened).sent
    puts += lone.ask(local.Produce(2, "topic", 1, packed(SMALL))).sent
    for each in puts:
        desk.send(BOB, each)
    assert desk.service.machine.bounds("topic") == (0, 3)
    desk.restart(limits=limits)
    reported = []
    lone.wait(10.0)
    for _ in range(10):
        reported += lone.events
        calls = [each for each in lone.sent if isinstance(each, Call)]
        if not calls:
            break
        for answer in desk.send(BOB, calls[0]):
            lone.hear(answer)
    assert reported == [local.Stored(1, 0, None), local.Stored(2, 2, None)]
    assert desk.service.machine.bounds("topic") == (0, 3)


@pytest.mark.parametrize("limits", LOWERED)
def test_stored_put_is_not_refused_by_a_lower_limit(limits: Limits) -> None:
    """SVC-2: otherwise the client would report a failure, and renumber all later puts."""
    lowered(limits)


def test_oversized_put_is_refused_unless_it_is_already_stored() -> None:
    """SVC-7"""
    desk = Desk(service={"limits": LOWERED[0]})
    epoch = producing(desk)
    desk.call(BOB, put(epoch, 0, SMALL))
    assert desk.call(BOB, put(epoch, 1, LARGE)) == TooLarge("bytes", 500)
    assert desk.call(BOB, put(epoch, 0, SMALL)) == Already(0, 1)


def test_node_without_a_lease_does_not_refuse_an_oversized_put() -> None:
    """SVC-2: another leader may have stored the message."""
    desk = Desk(service={"limits": LOWERED[0]})
    epoch = producing(desk)
    desk.service.group.leads = lambda now: False  # type: ignore[method-assign]
    assert isinstance(desk.call(BOB, put(epoch, 0, LARGE)), Overloaded)
