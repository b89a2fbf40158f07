"""NET-1: the runtime drives a stack: timers, requests, messages to itself, and stops."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from oncecast.kernel.protocol import Effect, Emit, Send, Value
from oncecast.network.network import run
from tests.network.raw import RawPeer
from tests.network.talk import (
    LOOPS,
    Bell,
    Break,
    Gone,
    Heard,
    Keep,
    Node,
    Rang,
    Ring,
    Tell,
    Word,
    drive,
)

every_loop = pytest.mark.parametrize("loop", LOOPS)


@every_loop
def test_timer_never_fires_early(loop: str) -> None:
    async def test() -> None:
        async with Node() as a:
            for delay in (0.0, 0.001, 0.0123, 0.05):
                a.request(Ring(delay))
                rang = await a.event()
                assert isinstance(rang, Rang)
                assert rang.late >= -1e-9

    drive(test(), loop)


@every_loop
def test_timers_fire_in_chronological_order(loop: str) -> None:
    async def test() -> None:
        seen: list[object] = []

        def trace(now: float, kind: str, subject: object, effects: list[Effect]) -> None:
            if kind == "wake":
                seen.append(subject)

        async with Node(trace=trace) as a:
            for delay in (0.03, 0.01, 0.02, 0.0, -1.0):
                a.request(Ring(delay))
            for _ in range(5):
                await a.event()
        assert seen == [Bell(-1.0), Bell(0.0), Bell(0.01), Bell(0.02), Bell(0.03)]

    drive(test(), loop)


def test_node_receives_messages_that_it_sends_to_itself() -> None:
    async def test() -> None:
        async with Node() as a:
            a.request(Tell(a.me, b"note to self"))
            assert await a.event() == Heard(a.me, b"note to self")
            assert a.stats.bytes_out == 0

    drive(test())


def test_request_from_an_event_handler_runs_after_the_step() -> None:
    """An event handler may make a request in the middle of a step."""

    async def test() -> None:
        async with Node() as a, Node() as b:
            answered: list[Value] = []

            def answer(event: Value) -> None:
                answered.append(event)
                if isinstance(event, Heard) and len(answered) < 3:
                    b.request(Tell(a.me, b"answer"))
                    b.request(Tell(b.me, b"and to myself"))

            b._on_event = answer
            a.request(Tell(b.me, b"question"))
            assert await a.event() == Heard(b.me, b"answer")
            assert answered[:2] == [Heard(a.me, b"question"), Heard(b.me, b"and to myself")]

    drive(test())


def test_trace_contains_each_input_and_its_effects() -> None:
    async def test() -> None:
        lines: list[tuple[str, object, list[Effect]]] = []
        times: list[float] = []

        def trace(now: float, kind: str, subject: object, effects: list[Effect]) -> None:
            times.append(now)
            lines.append((kind, subject, list(effects)))

        async with Node(trace=trace) as a, RawPeer() as peer:
            a.request(Keep(peer.id))
            a.request(Tell(a.me, b"x"))
            (await peer.accepted.get()).close()
            while await a.event() != Gone(peer.id):
                pass
        assert [(kind, subject) for kind, subject, _ in lines] == [
            ("start", None),
            ("request", Keep(peer.id)),
            ("request", Tell(a.me, b"x")),
            ("receive", (a.me, Word(b"x"))),
            ("down", peer.id),
        ]
        assert lines[2][2][-1] == Send(a.me, Word(b"x"))
        assert lines[3][2] == [Emit(Heard(a.me, b"x"))]
        assert times == sorted(times)

    drive(test())


@every_loop
def test_exception_in_a_protocol_stops_the_node(loop: str) -> None:
    async def test() -> None:
        started = asyncio.Event()
        a = Node(trace=lambda *step: started.set())
        running = asyncio.create_task(a.run())
        await started.wait()
        a.request(Break())
        with pytest.raises(ZeroDivisionError, match="a bug in a protocol"):
            await running

    drive(test(), loop)


def test_exception_in_an_embedded_node_is_raised_when_it_exits() -> None:
    async def test() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Node() as a:
                a.request(Break())
                a.request(Tell(a.me, b"too late"))
                assert a.events.empty()

    drive(test())


@every_loop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_node_cleanly(number: int, loop: str) -> None:
    async def test() -> None:
        started = asyncio.Event()
        running = asyncio.create_task(Node(trace=lambda *step: started.set()).run())
        await started.wait()
        os.kill(os.getpid(), number)
        await running

    drive(test(), loop)


@every_loop
def test_messages_sent_before_a_stop_still_arrive(loop: str) -> None:
    async def test() -> None:
        async with Node() as b:
            async with Node() as a:
                a.request(Tell(b.me, b"connected"))
                await b.event()
                for _ in range(100):
                    a.request(Tell(b.me, bytes(100_000)))
            for _ in range(100):
                assert await b.event() == Heard(a.me, bytes(100_000))

    drive(test(), loop)


def test_peer_that_does_not_read_delays_shutdown_up_to_the_drain_timeout() -> None:
    async def test() -> None:
        async with RawPeer() as peer, Node(drain_timeout=0.05) as a:
            a.request(Tell(peer.id, bytes(500_000)))
            raw = await peer.welcome()
            await raw.read()
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(100):
                a.request(Tell(peer.id, bytes(100_000)))

    drive(test())


def test_stopped_node_ignores_inputs() -> None:
    async def test() -> None:
        async with Node() as a:
            a.stop()
            a.request(Tell(a.me, b"too late"))
            assert a.events.empty()

    drive(test())


def test_run_uses_uvloop() -> None:
    async def which() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(which()) == "uvloop"


def test_run_works_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def which() -> str:
        return type(asyncio.get_running_loop()).__module__

    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    assert run(which()) == "asyncio.unix_events"
