"""Test the decision whether an event loop polls, and the loop that follows it."""

from __future__ import annotations

import asyncio

import pytest

from oncecast.network import polling
from oncecast.network.options import Stats
from oncecast.network.polling import LATE, PAUSE_MAX, PAUSE_MIN, WINDOW, BusyPolling, Poller

STEP = LATE / 2


class Core:
    """A simulated core on which a loop polls."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.now, self.messages, self.switches = 0.0, 0, 0
        self.policy = BusyPolling(seconds, self.now)

    def wants(self, after: float = STEP, *, messages: int = 0, switches: int = 0) -> bool:
        self.now += after
        self.messages += messages
        self.switches += switches
        return self.policy.wants(self.now, self.messages, self.switches)

    def polls_for(self, seconds: float) -> bool:
        """Poll on an idle core. Return whether the loop wants to poll the whole time."""
        return all(self.wants() for _ in range(round(seconds / STEP)))


def contend(core: Core) -> None:
    """Start to poll, and interrupt the loop until it stops."""
    assert core.wants(messages=1)
    assert not core.wants(switches=polling.INTERRUPTIONS_MAX + 1)


def test_loop_without_messages_sleeps() -> None:
    assert not Core().wants()


def test_loop_polls_after_a_message_and_sleeps_when_none_follows() -> None:
    core = Core(seconds=1.0)
    assert core.wants(messages=1)
    assert core.polls_for(0.9)
    assert not core.wants(0.1)
    assert core.wants(messages=1)


def test_each_message_extends_polling() -> None:
    core = Core(seconds=1.0)
    assert core.wants(messages=1)
    assert core.wants(0.9, messages=1)
    assert core.wants(0.9, messages=1)


def test_involuntary_switches_stop_polling() -> None:
    core = Core()
    assert core.wants(messages=1)
    assert core.wants(switches=polling.INTERRUPTIONS_MAX)
    assert not core.wants(switches=1)
    assert core.policy.contended == 1


def test_late_polls_stop_polling() -> None:
    """A hypervisor can take the core away without a context switch."""
    core = Core()
    assert core.wants(messages=1)
    late = [core.wants(2 * LATE) for _ in range(polling.INTERRUPTIONS_MAX + 1)]
    assert late == [True] * polling.INTERRUPTIONS_MAX + [False]


def test_loop_that_handles_messages_is_not_late() -> None:
    core = Core()
    assert all(core.wants(2 * LATE, messages=1) for _ in range(100))


def test_rare_interruptions_do_not_stop_polling() -> None:
    core = Core(seconds=100.0)
    assert core.wants(messages=1)
    assert all(core.wants(switches=1) and core.polls_for(WINDOW) for _ in range(20))


def test_switches_before_polling_do_not_count() -> None:
    core = Core(seconds=1.0)
    assert not core.wants(switches=1000)
    assert core.wants(messages=1)
    assert core.wants()


def test_contended_loop_polls_again_after_a_pause() -> None:
    core = Core()
    contend(core)
    assert not core.wants(PAUSE_MIN - 2 * STEP, messages=1)
    assert core.wants(2 * STEP)


def test_each_contended_window_doubles_the_pause() -> None:
    core = Core(seconds=1000.0)
    pauses = []
    for _ in range(8):
        contend(core)
        began = core.now
        while not core.wants():
            pass
        pauses.append(round(core.now - began))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses[-1] == PAUSE_MAX


def test_pause_starts_at_its_minimum_after_a_long_time_without_contention() -> None:
    core = Core(seconds=1000.0)
    for _ in range(3):
        contend(core)
        core.wants(PAUSE_MAX)
    assert core.polls_for(4.0 + 2 * WINDOW)
    contend(core)
    assert core.wants(PAUSE_MIN)


class Looks:
    """Counts the looks of a poller, and always gives it the same answer."""

    def __init__(self, answer: int) -> None:
        self.count, self.answer = 0, answer

    def __call__(self, *_: object) -> int:
        self.count += 1
        return self.answer


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_poller_keeps_the_loop_ready_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(True)
    monkeypatch.setattr(BusyPolling, "wants", looks)

    async def poll() -> None:
        poller = Poller(asyncio.get_running_loop(), 1.0, Stats())
        await turns(10)
        poller.stop()
        seen = looks.count
        await turns(10)
        assert looks.count == seen

    asyncio.run(poll())
    assert looks.count >= 9


def test_poller_lets_the_loop_sleep_without_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(0)
    monkeypatch.setattr(BusyPolling, "wants", looks)

    async def poll() -> None:
        poller = Poller(asyncio.get_running_loop(), 1.0, Stats())
        await turns(10)
        poller.stop()

    asyncio.run(poll())
    assert looks.count == 1


def test_count_of_involuntary_switches_never_falls() -> None:
    assert 0 <= polling.involuntary_switches() <= polling.involuntary_switches()
