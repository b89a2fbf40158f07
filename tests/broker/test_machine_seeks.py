"""At feature level 2 and above, no seek takes effect twice, even if a copy arrives late."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from oncecast.broker.answered import ANSWERED_MAX
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.limits import Limits
from oncecast.wire.results import Sought
from tests.broker.machine_steps import Steps

SEEK = do.Seek("t", "s", do.FromOffset(2), 0, "token")
OTHER = do.Seek("t", "s", do.FromOffset(7), 0, "another token")


def prepared(level: int = do.SEEK_LEVEL) -> Steps:
    """Return a topic with ten messages, and the subscription "s" that has acknowledged none."""
    steps = Steps()
    steps.apply(do.SetLimits(Limits(), level))
    steps.subscribe("holds")
    steps.subscribe()
    steps.put(steps.open(), 0, 10)
    return steps


def place(steps: Steps) -> tuple[int, int]:
    subscription = steps.machine.registry.topics["t"].subscriptions["s"]
    return subscription.epoch, subscription.cursor


def forget_answers(steps: Steps) -> None:
    for number in range(ANSWERED_MAX):
        steps.apply(do.CreateTopic("t", 0, token=str(number)))


def test_seek_with_another_epoch_is_refused_with_the_current_one() -> None:
    """SVC-6: the caller repeats the seek with that epoch and the same token."""
    steps = prepared()
    epoch, _ = place(steps)
    for wrong in (0, epoch - 1, epoch + 1):
        assert steps.apply(replace(SEEK, expected=wrong)) == errors.Fenced(epoch)
    assert place(steps) == (epoch, 0)
    seek = replace(SEEK, expected=epoch)
    moved = Sought(steps.machine.registry.last_epoch + 1, 2, already=False)
    assert steps.apply(seek) == moved
    assert steps.apply(seek) == replace(moved, already=True)


@pytest.mark.parametrize("other", [OTHER, do.Attach("t", "s", "inc-1")])
def test_late_copy_of_a_seek_changes_nothing(
    other: do.Command,
) -> None:
    """SVC-6 SVC-13: the seek's epoch has passed, so no answer needs to be stored."""
    steps = prepared()
    epoch, _ = place(steps)
    seek = replace(SEEK, expected=epoch)
    steps.apply(seek)
    steps.apply(other)
    forget_answers(steps)
    now = place(steps)
    steps.apply(seek)
    assert place(steps) == now


def test_late_copy_of_a_seek_does_not_move_a_new_subscription() -> None:
    """SVC-6"""
    steps = prepared()
    seek = replace(SEEK, expected=place(steps)[0])
    steps.apply(seek)
    steps.apply(do.Unsubscribe("t", "s", 0))
    steps.subscribe()
    forget_answers(steps)
    now = place(steps)
    assert steps.apply(seek) == errors.Fenced(now[0])
    assert place(steps) == now


def test_reader_seek_takes_effect_once_despite_another_seek_between_its_copies() -> None:
    """SVC-1: the answer to the first copy was lost, and the reader does not try again."""
    steps = prepared()
    seek = replace(SEEK, epoch=steps.attach().epoch)
    first = steps.apply(seek)
    assert isinstance(first, Sought)
    steps.apply(replace(OTHER, expected=first.epoch))
    now = place(steps)
    assert steps.apply(seek) == replace(first, already=True)
    assert steps.apply(replace(seek, epoch=now[0])) == replace(first, already=True)
    assert place(steps) == now


def test_later_reader_seek_takes_effect_in_the_new_epoch() -> None:
    """SVC-1: the refusal is not kept as the answer, because the reader uses the token again."""
    steps = prepared()
    seek = replace(SEEK, epoch=steps.attach().epoch)
    moved = steps.apply(replace(OTHER, expected=seek.epoch))
    assert isinstance(moved, Sought)
    assert steps.apply(seek) == errors.Repositioned(moved.epoch, 7)
    again = steps.apply(replace(seek, epoch=moved.epoch))
    assert again == Sought(moved.epoch + 1, 2, already=False)


def test_group_below_the_level_ignores_the_expected_epoch_of_a_seek() -> None:
    """OPS-2: the first version does so too, and all replicas must have the same state."""
    steps = prepared(level=1)
    epoch = place(steps)[0]
    first = steps.apply(replace(SEEK, expected=0))
    assert first == Sought(epoch + 2, 2, already=False)
    assert steps.apply(replace(SEEK, expected=0)) == replace(first, already=True)
    steps.apply(replace(OTHER, epoch=steps.attach().epoch))
    tokens = [token for token, _ in steps.machine.registry.answered.items()]
    assert tokens == ["token"]


def test_seek_from_a_first_version_client_expects_no_epoch() -> None:
    """SVC-10"""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(SEEK))
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:-1]), type=do.Seek)
    assert old == SEEK
    steps = prepared()
    assert isinstance(steps.apply(old), Sought)
