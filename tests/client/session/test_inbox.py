"""The inbox delivers each message once, and acknowledges delivered messages."""

from __future__ import annotations

import pytest

from oncecast.client.session.inbox import Inbox
from oncecast.wire import batch


def messages(first: int, count: int) -> list[batch.Message]:
    packed = batch.encode([b"%d" % each for each in range(count)], timestamps=1)
    return batch.messages(packed, topic="t", offset=first, producer="p", sequence=0)


def inbox(count: int = 5, *, auto_ack: bool = True) -> Inbox:
    made = Inbox(auto_ack=auto_ack)
    assert made.arrive(messages(0, count))
    return made


@pytest.mark.parametrize("auto_ack", [False, True])
def test_new_inbox_is_empty(auto_ack: bool) -> None:
    box = Inbox(auto_ack=auto_ack)
    assert (box.delivered, box.ack, box.end, box.mark, box.last) == (0, 0, 0, 0, 0)


def test_session_is_notified_when_the_inbox_is_half_empty() -> None:
    box = inbox(5)
    assert (box.mark, box.end) == (2, 5)
    box.take_many(3)
    assert box.arrive(messages(5, 2))
    assert (box.mark, box.end) == (2, 7)
    box.position(9)
    assert (box.mark, box.last, box.end, box.ack) == (0, 0, 9, 9)


def test_only_delivered_messages_can_be_acknowledged() -> None:
    """SVC-3"""
    box = inbox(auto_ack=False)
    box.take_many(2)
    box.acknowledge(0)
    assert box.ack == 1
    for offset in (-1, 2):
        with pytest.raises(ValueError, match=f"offset {offset} has not been delivered yet"):
            box.acknowledge(offset)
    box.acknowledge(1)
    assert box.ack == 2


def test_take_sends_no_ack_after_acknowledge_all() -> None:
    """SVC-3"""
    box = inbox()
    box.take_many(3)
    assert (box.last, box.ack) == (3, 0)
    box.acknowledge_all()
    assert (box.last, box.ack) == (0, 3)


@pytest.mark.parametrize("auto_ack", [False, True])
def test_seeking_back_does_not_acknowledge_messages(auto_ack: bool) -> None:
    """SVC-3: messages before the new offset keep their state."""
    box = inbox(auto_ack=auto_ack)
    box.take()
    box.take_many(3)
    if not auto_ack:
        box.acknowledge(0)
    for offset in (-1, 4):
        with pytest.raises(ValueError, match=f"offset {offset} has not been delivered yet"):
            box.back(offset)
    why = (
        "was acknowledged when the next" if auto_ack else "is already acknowledged .only 1 to 3 can"
    )
    with pytest.raises(ValueError, match=f"offset 0 {why}"):
        box.back(0)
    assert box.back(3) == 4
    assert (box.delivered, box.ack, box.last) == (3, 1, 2)
    assert box.back(1) == 3
    with pytest.raises(ValueError, match="offset 1 has not been delivered yet"):
        box.back(1)
    assert (box.delivered, box.ack, box.last) == (1, 1, 0)


def test_all_delivered_messages_can_be_delivered_again() -> None:
    """SVC-3"""
    box = inbox()
    taken = box.take_many(2)
    assert [each.offset for each in taken] == [0, 1]
    assert box.back(0) == 2
    assert (box.delivered, box.ack) == (0, 0)
    assert not box.arrive(messages(2, 1))
    assert box.arrive(messages(0, 3))
    assert [each.offset for each in box.take_many(9)] == [0, 1, 2]
    assert box.take_many(9) == []
