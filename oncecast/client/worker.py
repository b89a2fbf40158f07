"""A worker program as a decorated function.

@oncecast.worker("emails", "sender", concurrency=4)
async def send(job: oncecast.Job) -> None: ...

if __name__ == "__main__":
    send.run("127.0.0.1:7400")
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from oncecast.client.client import DEFAULT_ADDRESS, Client
from oncecast.client.jobs import Handler, Job, SharedSubscription
from oncecast.client.shared import Shared
from oncecast.client.starts import NEW
from oncecast.wire.commands import Start


class Worker:
    """A function that handles jobs. Calling the worker calls the function."""

    def __init__(
        self,
        handler: Handler,
        topic: str,
        subscription: str,
        *,
        concurrency: int,
        prefetch: int,
        start: Start,
        shared: Shared | None,
    ) -> None:
        self._handler, self._concurrency = handler, concurrency
        self._topic, self._subscription = topic, subscription
        self._prefetch, self._start, self._shared = prefetch, start, shared

    def __call__(self, job: Job) -> object:
        return self._handler(job)

    def run(self, address: str = DEFAULT_ADDRESS, **options: Any) -> None:
        """Work until SIGTERM or SIGINT. Takes the options of `oncecast.connect`.

        The first signal drains: started jobs are finished. A second signal gives them back.
        """
        from oncecast.network.network import run

        run(self._work(Client(address, **options)))

    async def _work(self, client: Client) -> None:
        async with client:
            jobs = await client.work(
                self._topic,
                self._subscription,
                prefetch=self._prefetch,
                start=self._start,
                shared=self._shared,
            )
            await until_signal(jobs, jobs.run(self._handler, concurrency=self._concurrency))


def worker(
    topic: str,
    subscription: str,
    *,
    concurrency: int = 1,
    prefetch: int | None = None,  # default: twice the concurrency
    start: Start = NEW,
    shared: Shared | None = None,
) -> Callable[[Handler], Worker]:
    """Decorate a function that handles the jobs of a shared subscription.

    The function may be `async`. A plain function runs in a thread.
    """

    def decorate(handler: Handler) -> Worker:
        return Worker(
            handler,
            topic,
            subscription,
            concurrency=concurrency,
            prefetch=prefetch or 2 * concurrency,
            start=start,
            shared=shared,
        )

    return decorate


async def until_signal(jobs: SharedSubscription, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until SIGTERM or SIGINT, then drain. Return False if a second signal ended it."""
    loop, working = asyncio.get_running_loop(), asyncio.ensure_future(drained(jobs, work))
    caught: list[int] = []

    def end(number: int) -> None:
        caught.append(number)
        if len(caught) == 1:
            jobs.stop()
        else:
            working.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    try:
        await working
    except asyncio.CancelledError:
        if len(caught) < 2:
            raise
        return False
    finally:
        working.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return True


async def drained(jobs: SharedSubscription, work: Coroutine[Any, Any, None]) -> None:
    await work
    await jobs.drain()
