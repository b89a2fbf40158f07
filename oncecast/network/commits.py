"""Writes a stack's records in groups that share one fdatasync.

A group consists of all records from one event loop iteration, or of all records that arrived while
the disk was busy. The loop keeps running while a large group is written. Messages and events that
depend on a record wait until that record is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from oncecast.kernel.histogram import Histogram
from oncecast.kernel.protocol import Append, Emit, Send, Snapshot, Trim
from oncecast.network.options import Options, Stats
from oncecast.network.transport import Transport
from oncecast.storage.gate import Gate
from oncecast.storage.journal import Flush, Journal

# Maximum rounds in `settle`, in case a protocol keeps sending messages to itself.
SETTLE_ROUNDS = 100


class Commits:
    def __init__(
        self,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        *,
        options: Options,
        stats: Stats,
        guard: Callable[..., None],  # calls a function; an exception in it ends the node
        # Called with the outputs whose records are on disk.
        release: Callable[[list[Send | Emit]], None],
    ) -> None:
        self._journal, self._loop, self._transport = journal, loop, transport
        self._options, self._stats = options, stats
        self._guard, self._release = guard, release
        self._gate = Gate()
        self._due = self._paused = False
        self._flushing: tuple[Flush, asyncio.Future[None]] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._begun = 0.0  # when the last write began
        self.sync_times = Histogram()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oncecast-disk")

    def permit(self, output: Send | Emit) -> bool:
        """Return whether `output` may be sent now. If not, hold it until its record is on disk."""
        return self._gate.opens(output, self._journal.synced)

    def record(self, effect: Append | Snapshot | Trim) -> None:
        self._journal.take(effect)
        self._stats.records += isinstance(effect, Append)
        if not self._due and self._flushing is None:
            self._due = True
            self._loop.call_soon(self._turn_ends)
        if not self._paused and self._overloaded():
            self._paused = True
            self._transport.pause()

    def _overloaded(self) -> bool:
        waiting, options = self._journal.pending_bytes, self._options
        return waiting > options.unsynced_bytes_max or len(self._gate.held) > options.held_max

    def _turn_ends(self) -> None:
        # Send messages that need no record before the disk blocks the loop.
        if self._transport.flush():
            self._loop.call_soon(self._guard, self._commit)
        else:
            self._guard(self._commit)

    def _commit(self) -> None:
        self._due = False
        if self._flushing is not None:
            return  # the current flush commits the rest when it ends
        journal = self._journal
        waiting = journal.waiting_bytes
        if not waiting:
            return
        self._begun = perf_counter()  # the loop's clock stands still within an iteration
        if waiting <= self._options.inline_bytes_max:
            journal.sync()
            self._synced()
            return
        flush = journal.begin()
        done = self._loop.run_in_executor(self._thread, flush.run)
        self._flushing = flush, done
        done.add_done_callback(lambda _: self._guard(self._flushed))

    def _flushed(self) -> None:
        assert self._flushing is not None
        (flush, done), self._flushing = self._flushing, None
        done.result()  # if the thread failed, raise its error
        self._journal.finish(flush)
        self._synced()
        self._commit()

    def _synced(self) -> None:
        """Send the messages that waited for the synced records, in the same loop iteration."""
        self._stats.syncs += 1
        self.sync_times.observe(perf_counter() - self._begun)
        self._release(self._gate.release(self._journal.synced))
        self._transport.flush()
        self._await_idleness()
        if self._paused and not self._overloaded():
            self._paused = False
            self._transport.resume()

    def _await_idleness(self) -> None:
        if self._idle is None:
            self._idle = self._loop.call_later(
                self._options.idle_after, self._guard, self._rest, self._journal.synced
            )

    def _rest(self, synced: int) -> None:
        """Mark the log as synced if nothing was appended meanwhile. Otherwise wait again."""
        self._idle = None
        journal = self._journal
        if journal.synced != synced or journal.waiting or self._flushing is not None:
            self._await_idleness()
        else:
            journal.mark()

    # -- stop --

    def stop(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    async def settle(self) -> None:
        """Write all records to disk and send all waiting messages."""
        journal = self._journal
        if self._flushing is not None:
            flush, done = self._flushing
            await done
            journal.finish(flush)
        # A node's message to itself may append more records that other messages depend on.
        for _ in range(SETTLE_ROUNDS):
            if journal.waiting:
                journal.sync()
            self._release(self._gate.release(journal.synced))
            if not journal.waiting:
                break

    def close(self, *, failed: bool) -> None:
        self._thread.shutdown()
        self._journal.abandon() if failed else self._journal.close()
