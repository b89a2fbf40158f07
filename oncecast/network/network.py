"""Runs a stack on a real network: feeds it inputs, writes its records, sends its messages.

A step's messages are sent when the event loop iteration ends, with one write per peer. Messages
that depend on a record wait until it is on disk (`commits.py`).

A bug in a protocol or a disk failure ends the node: `run` raises the error, and waiting messages
are not sent.

Several stacks may share a process and its listener. The primary stack runs as long as the process.
Secondary stacks start and stop at any time. Each has its own id, journal and clock. If a secondary
stack fails, the primary stack ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from oncecast.errors import CannotListen
from oncecast.kernel.codec import Codec
from oncecast.kernel.histogram import Histogram
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
from oncecast.kernel.stack import Output, Stack
from oncecast.kernel.values import Wake
from oncecast.network.login import Logins, OpenLogins
from oncecast.network.options import Options, Stats
from oncecast.network.transport import Transport
from oncecast.network.trust import Trust
from oncecast.network.wakes import Wakes

if TYPE_CHECKING:
    from oncecast.network.commits import Commits
    from oncecast.network.listener import Listen
    from oncecast.network.polling import Poller
    from oncecast.network.tls import Tls
    from oncecast.security.secret import ClusterSecret
    from oncecast.storage.journal import Journal

T = TypeVar("T")

# Called after each step with the input's time, kind and subject, and a reused list of effects.
Trace = Callable[[float, str, object, list[Effect]], None]


class Runtime:
    """One node. Call `await run()`, which returns on a signal, or use it in `async with`."""

    # Long because each option has a line.
    def __init__(
        self,
        stack: Stack,
        *,
        me: NodeId,
        listen: Listen | None = None,
        journal: Journal | None = None,  # None if the state need not survive a restart
        on_event: Callable[[Value], None] = lambda event: None,
        tls: Tls | None = None,
        insecure: bool = False,
        trace: Trace | None = None,
        clients: tuple[type[Value], ...] = (),  # message types of clients; empty to refuse clients
        secret: ClusterSecret | None = None,  # shared by all nodes of the cluster
        logins: Logins | None = None,  # None if all clients are anonymous
        options: Options | None = None,
        # The runtime whose listener, TLS, logins, options and counters this one shares.
        primary: Runtime | None = None,
        # Exceptions in this runtime that do not end `primary`.
        tolerated: tuple[type[Exception], ...] = (),
    ) -> None:
        self.me, self.stack, self.journal = me, stack, journal
        self.options, self.stats = options or Options(), Stats()
        self._listen = me if listen is None else listen
        self._on_event, self._trace = on_event, trace
        self._trust = Trust(
            tls=tls, secret=secret, insecure=insecure, logins=logins or OpenLogins()
        )
        self._clients, self._primary, self._tolerated = clients, primary, tolerated
        if primary is not None:
            assert not any((listen, tls, secret, logins, options)), (
                f"{me} must inherit these settings from {primary.me}"
            )
            self.options, self.stats, self._trust = primary.options, primary.stats, primary._trust
        self._secondaries: dict[Runtime, None] = {}
        self._closing: asyncio.Task[BaseException | None] | None = None
        self._transport: Transport
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._asked: asyncio.Future[None]
        self._now = 0.0
        self._inputs: deque[tuple[Callable[..., list[Output]], tuple[Any, ...]]] = deque()
        self._stepping = False
        self._wakes: Wakes
        self._handlers: dict[type[Value], Callable[[Any], None]]
        self._commits: Commits | None = None  # set only if there is a journal
        self._poller: Poller | None = None  # set only if `options.busy_poll` is set

    # -- start and stop --

    @property
    def sync_times(self) -> Histogram | None:
        """Return how long writes to the log took, or None without a journal."""
        return None if self._commits is None else self._commits.sync_times

    async def run(self) -> None:
        """Serve until `stop()`, SIGTERM or SIGINT. Raise the error that ended the node, if any."""
        async with self:
            await self.wait()

    async def wait(self) -> None:
        """Wait until the node should be closed. Only a primary node handles signals."""
        with contextlib.nullcontext() if self._primary else self._signals():
            await asyncio.wait((self._ended, self._asked), return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            self._ended.result()

    def ask_to_stop(self) -> None:
        """Make `wait` return. The node keeps processing inputs until it is closed."""
        if not self._asked.done():
            self._asked.set_result(None)

    def stop(self) -> None:
        """Stop processing inputs. `run` then writes all records, empties its queues and returns."""
        if not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: Exception) -> None:
        """Stop processing inputs. `run` then raises `error`."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # mark it as retrieved; `close` raises it
            self._fail_primary(error)

    def when_ended(self, tell: Callable[[BaseException | None], None]) -> None:
        """Call `tell` with the error that ended the node, or with None after a normal stop."""
        self._ended.add_done_callback(lambda ended: tell(ended.exception()))

    def _fail_primary(self, error: Exception) -> None:
        if self._primary is not None and not isinstance(error, self._tolerated):
            self._primary.fail(error)

    @property
    def stopping(self) -> bool:
        ended = getattr(self, "_ended", None)  # not set before the start
        return ended is not None and ended.done()

    @property
    def draining(self) -> bool:
        """Return whether the node is stopping or was asked to stop."""
        asked = getattr(self, "_asked", None)
        return self.stopping or (asked is not None and asked.done())

    @property
    def failure(self) -> BaseException | None:
        """Return the error that ended the node, or None if it is running or stopped normally."""
        return self._ended.exception() if self.stopping else None

    def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._asked = self._loop.create_future()
        self._wakes = Wakes(self._loop, self._wake)

    def _attach(self, transport: Transport) -> None:
        self._transport = transport
        if self.journal is not None:
            from oncecast.network.commits import Commits  # imported here: most clients need none

            self._commits = Commits(
                self.journal,
                self._loop,
                transport,
                options=self.options,
                stats=self.stats,
                guard=self._guard,
                release=self._release,
            )
        self._handlers = self._output_handlers()
        if self.options.busy_poll and self._primary is None:
            from oncecast.network.polling import Poller  # imported here, because few nodes need it

            self._poller = Poller(self._loop, self.options.busy_poll, self.stats)

    async def __aenter__(self) -> Self:
        primary = self._primary
        if primary is not None and primary.stopping:
            raise CannotListen(
                f"cannot start {self.me}: its process {primary.me} is stopping",
                "restart the process",
            )
        self._prepare()
        transport = Transport(
            self.me,
            Codec(tuple(kind for kind in self.stack.wiring.receiver if kind not in self._clients)),
            client_codec=Codec(self._clients, wary=True) if self._clients else None,
            deliver=partial(self._input, self.stack.receive),
            down=partial(self._input, self.stack.down),
            options=self.options,
            stats=self.stats,
            trust=self._trust,
            primary=None if primary is None else primary._transport,
        )
        self._attach(transport)
        await transport.open(self._listen)
        if primary is not None:
            primary._secondaries[self] = None
        self._input(self.stack.start)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        failed = await self.close()
        if failed is not None and failed is not error:
            raise failed

    async def close(self) -> BaseException | None:
        """Stop and wait for the end. Return the error, if any. May be called repeatedly."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        return await asyncio.shield(self._closing)

    async def _close(self) -> BaseException | None:
        self.stop()
        failed = self._ended.exception()
        self._wakes.stop()
        if self._poller is not None:
            self._poller.stop()
        if self._commits is not None:
            self._commits.stop()
        await self._transport.lock()
        secondary_error = await self._close_secondaries()
        try:
            if failed is None and self._commits is not None:
                await self._commits.settle()
        except Exception as unsettled:  # noqa: BLE001  # `close` returns it
            failed = unsettled
            self._fail_primary(unsettled)
        await self._transport.close(0.0 if failed else self.options.drain_timeout)
        if self._commits is not None:
            self._commits.close(failed=failed is not None)
        if self._primary is not None:
            self._primary._secondaries.pop(self, None)
        return failed or secondary_error

    async def _close_secondaries(self) -> BaseException | None:
        """Close the secondary stacks. Return the first error that is not tolerated, or None."""
        runtimes = list(self._secondaries)
        failures = await asyncio.gather(*(runtime.close() for runtime in runtimes))
        for runtime, failed in zip(runtimes, failures, strict=True):
            if failed is not None and not isinstance(failed, runtime._tolerated):
                return failed
        return None

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
        """Send a request to the stack, which answers with events."""
        self._input(self.stack.request, request)

    def principal_of(self, client: NodeId) -> str:
        """Return the principal of a connected client, or "" if it is anonymous."""
        return self._transport.clients.principal_of(client)

    def address_of(self, client: NodeId) -> str:
        """Return the host:port of a connected client, or "" if it is not connected."""
        return self._transport.clients.address_of(client)

    def unsent_bytes(self, peer: NodeId) -> int:
        """Return the unsent bytes for this peer."""
        return self._transport.unsent_bytes(peer)

    def _input(self, step: Callable[..., list[Output]], *subject: Any) -> None:
        # The stack is not re-entrant: requests from an event handler wait until the step ends.
        if self._stepping:
            self._inputs.append((step, subject))
        else:
            self._guard(self._step, step, subject)

    def _guard(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run `work`, then the inputs that it caused. Any exception ends the node."""
        if self._ended.done():
            return
        self._stepping = True
        try:
            work(*arguments)
            while self._inputs:
                self._step(*self._inputs.popleft())
        except Exception as error:  # noqa: BLE001  # `run` raises it
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
            self._trace(now, step.__name__, traced(subject), self.stack.effects)
        for output in outputs:
            self._handlers[type(output)](output)

    def _wake(self, wake: Wake) -> None:
        self._now = max(self._now, wake.at)  # the loop's timer may fire early
        self._input(self.stack.wake, wake)

    # -- outputs --

    def _output_handlers(self) -> dict[type[Value], Callable[[Any], None]]:
        """Return the handler for each type of output."""
        record = (lambda effect: None) if self._commits is None else self._commits.record
        handlers: dict[type[Value], Callable[[Any], None]] = {
            Send: self._send,
            Emit: self._emit,
            Append: record,
            Snapshot: record,
            Trim: record,
            Wake: self._wakes.add,
            Watch: lambda watch: self._transport.watch(watch.peer),
            Unwatch: lambda unwatch: self._transport.unwatch(unwatch.peer),
        }
        assert handlers.keys() == set(get_args(Output))
        return handlers

    def _send(self, send: Send) -> None:
        if not send.after or self._commits is None or self._commits.permit(send):
            self._let_go(send)

    def _emit(self, emit: Emit) -> None:
        if not emit.after or self._commits is None or self._commits.permit(emit):
            self._on_event(emit.event)

    def _let_go(self, send: Send) -> None:
        if send.to == self.me:
            self._inputs.append((self.stack.receive, (self.me, send.message)))
        else:
            self._transport.send(send.to, send.message)

    def _release(self, outputs: list[Send | Emit]) -> None:
        """Send the messages that waited for the disk, and process messages to this node."""
        for output in outputs:
            if isinstance(output, Send):
                self._let_go(output)
            else:
                self._on_event(output.event)
        while self._inputs:
            self._step(*self._inputs.popleft())


def traced(subject: tuple[Any, ...]) -> object:
    """Return the subject of an input for a trace. For a wake-up call, this is its timer."""
    if len(subject) != 1:
        return subject or None
    return subject[0].timer if isinstance(subject[0], Wake) else subject[0]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on uvloop if it is installed, otherwise on asyncio's loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
