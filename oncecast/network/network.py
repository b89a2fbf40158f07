"""A stack on a real network: steps its inputs, keeps its records, carries its messages.

Inputs are stepped as they come. What a step sends leaves at the end of the loop's turn, one write a
peer; what depends on a record that is not on disk yet is held, and goes when it is. Records are
written in groups: all that one turn has appended, or all that came while the disk was busy, share
one fdatasync. Meanwhile the loop goes on stepping.

A bug in a protocol or a disk that fails ends the node: `run` raises it, and nothing held is sent.

Several stacks may share a process and its door. The first is the landlord of the others, which come
and go while it runs; each has its own id, journal and clock. A tenant's failure is its landlord's.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, get_args

from oncecast.kernel.codec import Codec
from oncecast.kernel.errors import CannotListen
from oncecast.kernel.protocol import (
    Append,
    Effect,
    Emit,
    NodeId,
    Send,
    Snapshot,
    Trim,
    Unwatch,
    Value,
    Watch,
)
from oncecast.kernel.stack import Output, Stack, Wake
from oncecast.network.listener import Listen
from oncecast.network.options import Options, Stats
from oncecast.network.tls import Tls
from oncecast.network.transport import Transport
from oncecast.network.wakes import Wakes
from oncecast.storage.gate import Gate
from oncecast.storage.journal import Flush, Journal

T = TypeVar("T")

SETTLE_ROUNDS = (
    100  # a protocol that never stops talking to itself must not keep a node from ending
)

# Called after each step: when, which input, what it carried, what came of it. The list is reused.
Trace = Callable[[float, str, object, list[Effect]], None]


class Runtime:
    """One node. Either `await run()`, which ends by a signal, or `async with` it."""

    def __init__(
        self,
        stack: Stack,
        *,
        me: NodeId,
        listen: Listen | None = None,
        journal: Journal | None = None,  # without one, nothing survives a restart
        on_event: Callable[[Value], None] = lambda event: None,
        tls: Tls | None = None,
        insecure: bool = False,
        trace: Trace | None = None,
        clients: tuple[type[Value], ...] = (),  # what clients may send; nothing: none are let in
        options: Options | None = None,
        landlord: Runtime | None = None,  # whose door, TLS, options and counters it then shares
        spared: tuple[type[Exception], ...] = (),  # failures that the landlord survives
    ) -> None:
        self.me, self.stack, self.journal = me, stack, journal
        self.options, self.stats = options or Options(), Stats()
        self._listen = me if listen is None else listen
        self._on_event, self._tls, self._insecure, self._trace = on_event, tls, insecure, trace
        self._clients, self._landlord, self._spared = clients, landlord, spared
        if landlord is not None:
            assert not any((listen, tls, options)), f"{me} has these of its landlord"
            self.options, self.stats, self._tls = landlord.options, landlord.stats, landlord._tls
        self._tenants: dict[Runtime, None] = {}
        self._closing: asyncio.Task[BaseException | None] | None = None
        self._transport: Transport
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._asked: asyncio.Future[None]
        self._now = 0.0
        self._inputs: deque[tuple[Callable[..., list[Output]], tuple[Any, ...]]] = deque()
        self._stepping = False
        self._wakes: Wakes
        self._deeds: dict[type[Value], Callable[[Any], None]]
        self._gate = Gate()
        self._idle: asyncio.TimerHandle | None = None
        self._commit_due = self._paused = False
        self._flushing: tuple[Flush, asyncio.Future[None]] | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="oncecast-disk")

    # -- life --

    async def run(self) -> None:
        """Serve until `stop()`, SIGTERM or SIGINT; raise what makes it impossible to go on."""
        async with self:
            await self.wait()

    async def wait(self) -> None:
        """For the end, which is then to be made by leaving it. A tenant leaves signals alone."""
        with contextlib.nullcontext() if self._landlord else self._signals():
            await asyncio.wait((self._ended, self._asked), return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            self._ended.result()

    def ask_to_stop(self) -> None:
        """Have `wait` return. Inputs are taken until the owner leaves it."""
        if not self._asked.done():
            self._asked.set_result(None)

    def stop(self) -> None:
        """Take no more inputs; `run` then makes everything durable, empties its queues, returns."""
        if not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: Exception) -> None:
        """Take no more inputs; `run` then raises this."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # whoever leaves it will ask
            self._tell_landlord(error)

    def when_ended(self, tell: Callable[[BaseException | None], None]) -> None:
        """Have this told why it takes no more inputs; None if it was asked to stop."""
        self._ended.add_done_callback(lambda ended: tell(ended.exception()))

    def _tell_landlord(self, error: Exception) -> None:
        if self._landlord is not None and not isinstance(error, self._spared):
            self._landlord.fail(error)

    @property
    def stopping(self) -> bool:
        ended = getattr(self, "_ended", None)  # none before it is entered
        return ended is not None and ended.done()

    @property
    def draining(self) -> bool:
        """Whether it is about to stop, or has begun to."""
        asked = getattr(self, "_asked", None)
        return self.stopping or (asked is not None and asked.done())

    @property
    def failure(self) -> BaseException | None:
        """Why it has ended; None if it runs, or was told to stop."""
        return self._ended.exception() if self.stopping else None

    def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._asked = self._loop.create_future()
        self._wakes = Wakes(self._loop, self._wake)
        self._deeds = self._all_deeds()

    async def __aenter__(self) -> Self:
        landlord = self._landlord
        if landlord is not None and landlord.stopping:
            raise CannotListen(f"{self.me}: {landlord.me} stops; start it again first")
        self._prepare()
        self._transport = Transport(
            self.me,
            Codec(tuple(kind for kind in self.stack.wiring.receiver if kind not in self._clients)),
            client_codec=Codec(self._clients) if self._clients else None,
            deliver=partial(self._input, self.stack.receive),
            down=partial(self._input, self.stack.down),
            options=self.options,
            stats=self.stats,
            tls=self._tls,
            landlord=None if landlord is None else landlord._transport,
        )
        await self._transport.open(self._listen, insecure=self._insecure)
        if landlord is not None:
            landlord._tenants[self] = None
        self._input(self.stack.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        failed = await self.close()
        if failed is not None and failed is not error:
            raise failed

    async def close(self) -> BaseException | None:
        """Stop, and wait for the end; what has failed, if anything has. Once is enough."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        return await asyncio.shield(self._closing)

    async def _close(self) -> BaseException | None:
        self.stop()
        failed = self._ended.exception()
        self._wakes.stop()
        if self._idle is not None:
            self._idle.cancel()
        await self._transport.lock()
        evicted = await self._evict()
        try:
            if failed is None:
                await self._settle()
        except Exception as unsettled:  # noqa: BLE001  # it is raised again, after the clean-up
            failed = unsettled
            self._tell_landlord(unsettled)
        await self._transport.close(0.0 if failed else self.options.drain_timeout)
        self._disk.shutdown()
        if self.journal is not None:
            self.journal.abandon() if failed else self.journal.close()
        if self._landlord is not None:
            self._landlord._tenants.pop(self, None)
        return failed or evicted

    async def _evict(self) -> BaseException | None:
        """Close the tenants; what has failed of one, unless it is to be survived."""
        tenants = list(self._tenants)
        failures = await asyncio.gather(*(tenant.close() for tenant in tenants))
        for tenant, failed in zip(tenants, failures, strict=True):
            if failed is not None and not isinstance(failed, tenant._spared):
                return failed
        return None

    async def _settle(self) -> None:
        """Everything on disk, and everything held on its way."""
        journal = self.journal
        if journal is None:
            return
        if self._flushing is not None:
            flush, done = self._flushing
            await done
            journal.finish(flush)
        # What the node says to itself may append again, and its answers wait for that.
        for _ in range(SETTLE_ROUNDS):
            if journal.waiting:
                journal.sync()
            self._release(journal)
            if not journal.waiting:
                break

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            self._loop.add_signal_handler(number, self.ask_to_stop)
        try:
            yield
        finally:
            for number in numbers:
                self._loop.remove_signal_handler(number)

    # -- inputs --

    def request(self, request: Value) -> None:
        """Ask the stack for something; what comes of it are events."""
        self._input(self.stack.request, request)

    def unsent_bytes(self, peer: NodeId) -> int:
        """What waits to leave for this peer: who produces faster than it reads should look."""
        return self._transport.unsent_bytes(peer)

    def _input(self, step: Callable[..., list[Output]], *subject: Any) -> None:
        # The stack is not re-entrant: what an event's receiver asks for waits for the step's end.
        if self._stepping:
            self._inputs.append((step, subject))
        else:
            self._guard(self._step, step, subject)

    def _guard(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do `work`, then the inputs that it caused.

        If something fails the node ends, whichever callback of the loop this was.
        """
        if self._ended.done():
            return
        self._stepping = True
        try:
            work(*arguments)
            while self._inputs:
                self._step(*self._inputs.popleft())
        except Exception as error:  # noqa: BLE001  # it is raised again, by run()
            self.fail(error)
        finally:
            self._stepping = False

    def _step(self, step: Callable[..., list[Output]], subject: tuple[Any, ...]) -> None:
        now = self._loop.time()
        if now < self._now:
            now = self._now
        self._now = now
        self.stats.steps += 1
        outputs = step(now, *subject)
        if self._trace is not None:
            self._trace(now, step.__name__, told(subject), self.stack.effects)
        for output in outputs:
            self._deeds[type(output)](output)

    def _wake(self, wake: Wake) -> None:
        self._now = max(self._now, wake.at)  # the loop's clock is coarse
        self._input(self.stack.wake, wake)

    # -- outputs --

    def _all_deeds(self) -> dict[type[Value], Callable[[Any], None]]:
        """What to do for each kind of output."""
        deeds: dict[type[Value], Callable[[Any], None]] = {
            Send: self._send,
            Emit: self._emit,
            Append: self._record,
            Snapshot: self._record,
            Trim: self._record,
            Wake: self._wakes.add,
            Watch: lambda watch: self._transport.watch(watch.peer),
            Unwatch: lambda unwatch: self._transport.unwatch(unwatch.peer),
        }
        assert deeds.keys() == set(get_args(Output))
        return deeds

    def _send(self, send: Send) -> None:
        if not send.after or self.journal is None or self._gate.opens(send, self.journal.synced):
            self._let_go(send)

    def _emit(self, emit: Emit) -> None:
        if not emit.after or self.journal is None or self._gate.opens(emit, self.journal.synced):
            self._on_event(emit.event)

    def _let_go(self, send: Send) -> None:
        if send.to == self.me:
            self._inputs.append((self.stack.receive, (self.me, send.message)))
        else:
            self._transport.send(send.to, send.message)

    def _release(self, journal: Journal) -> None:
        """What was held goes, and with it what the node says to itself."""
        for output in self._gate.release(journal.synced):
            if isinstance(output, Send):
                self._let_go(output)
            else:
                self._on_event(output.event)
        while self._inputs:
            self._step(*self._inputs.popleft())

    # -- the disk --

    def _record(self, effect: Append | Snapshot | Trim) -> None:
        journal = self.journal
        if journal is None:
            return
        journal.take(effect)
        self.stats.records += isinstance(effect, Append)
        if not self._commit_due and self._flushing is None:
            self._commit_due = True
            self._loop.call_soon(self._turn_ends)
        if not self._paused and self._overloaded(journal):
            self._paused = True
            self._transport.pause()

    def _overloaded(self, journal: Journal) -> bool:
        options = self.options
        waiting = journal.pending_bytes
        return waiting > options.unsynced_bytes_max or len(self._gate.held) > options.held_max

    def _turn_ends(self) -> None:
        # What waits for nothing leaves first; a loop that writes at the end of its turn needs one.
        if self._transport.flush():
            self._loop.call_soon(self._guard, self._commit)
        else:
            self._guard(self._commit)

    def _commit(self) -> None:
        self._commit_due = False
        journal = self.journal
        if journal is None or self._flushing is not None:
            return  # a flush that is under way commits the rest when it is done
        waiting = journal.waiting_bytes
        if not waiting:
            return
        if waiting <= self.options.inline_bytes_max:
            journal.sync()
            self._synced()
            return
        flush = journal.begin()
        done = self._loop.run_in_executor(self._disk, flush.run)
        self._flushing = flush, done
        done.add_done_callback(lambda _: self._guard(self._flushed))

    def _flushed(self) -> None:
        assert self.journal is not None
        assert self._flushing is not None
        (flush, done), self._flushing = self._flushing, None
        done.result()  # raises what went wrong in the thread
        self.journal.finish(flush)
        self._synced()
        self._commit()

    def _synced(self) -> None:
        """Let go what has waited for this, and all that comes of it, in the same turn."""
        self.stats.syncs += 1
        assert self.journal is not None
        self._release(self.journal)
        self._transport.flush()
        self._await_idleness(self.journal)
        if self._paused and not self._overloaded(self.journal):
            self._paused = False
            self._transport.resume()

    def _await_idleness(self, journal: Journal) -> None:
        if self._idle is None:
            self._idle = self._loop.call_later(
                self.options.idle_after, self._guard, self._rest, journal, journal.synced
            )

    def _rest(self, journal: Journal, synced: int) -> None:
        """Idle since then: note on disk that nothing before is a torn tail."""
        self._idle = None
        if journal.synced != synced or journal.waiting or self._flushing is not None:
            self._await_idleness(journal)
        else:
            journal.mark()


def told(subject: tuple[Any, ...]) -> object:
    """What an input carried, as a trace shows it: a timer rather than its appointment."""
    if len(subject) != 1:
        return subject or None
    return subject[0].timer if isinstance(subject[0], Wake) else subject[0]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on uvloop, or on asyncio's own loop where there is no uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
