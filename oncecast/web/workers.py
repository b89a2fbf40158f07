"""Get and settle the jobs of shared subscriptions.

The session has one worker for each subscription. It asks for jobs only while requests wait for
them. A job belongs to the HTTP client until its lease ends. The client settles or renews the job by
its token. If it does neither in time, the job goes back to the subscription.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from oncecast.client.jobs import Job, SharedSubscription
from oncecast.errors import LeaseLost, OncecastError, Overloaded
from oncecast.web.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncecast.client.client import Client

Lease = tuple[int, int]  # token and offset

WORKERS_MAX = 1000  # maximum subscriptions that one user works on at a time
IDLE = 60.0  # seconds after which a worker without jobs is closed
LATE = "the HTTP client has not settled the job in time"
CHECK_LEASE = 10.0  # seconds for which the lease of the subscription is remembered


class Worker:
    def __init__(self, jobs: SharedSubscription) -> None:
        self.jobs = jobs
        self.held: dict[Lease, Job] = {}
        self.ends: dict[Lease, float] = {}  # when each job goes back
        self.lease = self.lease_known_at = 0.0
        self.wanted = 0  # jobs that requests in progress wait for
        self.used = 0.0

    def resize(self) -> None:
        """Hold as many jobs as the clients have and wait for."""
        size = len(self.held) + self.wanted
        spare = len(self.held) + self.jobs.queued > size
        if spare or size != self.jobs.prefetch:
            with suppress(OncecastError):
                self.jobs.resize(size)

    def forget(self, lease: Lease) -> Job | None:
        self.ends.pop(lease, None)
        return self.held.pop(lease, None)

    def expire(self, now: float) -> None:
        """Give back jobs whose lease has ended, and forget those that were lost."""
        for lease, end in list(self.ends.items()):
            job = self.held[lease]
            if job.lost or job.settled:
                self.forget(lease)
            elif now >= end:
                self.forget(lease)
                with suppress(OncecastError):
                    job.nack(reason=LATE)


class Workers:
    def __init__(self, client: Client, backend: Backend) -> None:
        self._client, self._backend = client, backend
        self._workers: dict[tuple[str, str], Worker] = {}

    @property
    def busy(self) -> bool:
        """Return whether a client has jobs."""
        return any(each.held for each in self._workers.values())

    async def take(
        self, topic: str, name: str, *, limit: int, wait: float
    ) -> tuple[list[Job], float]:
        """Return up to `limit` jobs, and their lease. Wait up to `wait` seconds for the first."""
        worker = await self._worker(topic, name, limit)
        lease = await self._lease(worker, topic, name)
        loop = asyncio.get_running_loop()
        worker.wanted += limit
        worker.resize()
        jobs: list[Job] = []
        try:
            timeout = max(wait, 0.2)  # the node needs some time to grant a lease
            while len(jobs) < limit:
                job = await worker.jobs.get(timeout)
                if job is None:
                    break
                jobs.append(job)
                key = (job.token, job.offset)
                worker.held[key], worker.ends[key] = job, loop.time() + lease
                timeout = 0.02  # jobs of one grant arrive together
        finally:
            worker.wanted -= limit
            worker.used = loop.time()
            worker.resize()
        return jobs, lease

    async def _worker(self, topic: str, name: str, limit: int) -> Worker:
        worker = self._workers.get((topic, name))
        if worker is not None and worker.jobs.error is None:
            return worker
        if len(self._workers) >= WORKERS_MAX:
            raise Overloaded(f"shared subscriptions in use (limit {WORKERS_MAX})")
        jobs = await self._client.work(topic, name, prefetch=limit, create=False)
        worker = self._workers.get((topic, name))
        if worker is None or worker.jobs is not jobs:
            worker = self._workers[topic, name] = Worker(jobs)
        return worker

    async def _lease(self, worker: Worker, topic: str, name: str) -> float:
        """Return the lease of the subscription. Raise NotSubscribed if it does not exist."""
        now = asyncio.get_running_loop().time()
        if not worker.lease or now - worker.lease_known_at > CHECK_LEASE:
            found = await self._backend.subscription(topic, name)
            worker.lease = found.shared.settings.lease_us / 1e6 if found.shared else 0.0
            worker.lease_known_at = now
        return worker.lease

    # -- settling --

    async def settle(
        self, topic: str, name: str, changes: Iterable[tuple[Lease, Callable[[Job], None]]]
    ) -> list[Lease]:
        """Apply the changes and wait until they are stored. Return the leases that are lost."""
        worker = self._workers.get((topic, name))
        settled: list[tuple[Lease, Job]] = []
        lost: list[Lease] = []
        for lease, change in changes:
            job = worker.held.get(lease) if worker is not None else None
            if worker is None or job is None or job.lost or job.settled:
                lost.append(lease)
                continue
            change(job)
            settled.append((lease, job))
            worker.forget(lease)
        if worker is not None and settled:
            with suppress(LeaseLost):
                await worker.jobs.flush(self._client.options.timeout)
            worker.resize()
        return lost + [lease for lease, job in settled if job.lost]

    def renew(self, topic: str, name: str, leases: Iterable[Lease]) -> list[Lease]:
        """Let the leases start again. Return those that are lost."""
        worker = self._workers.get((topic, name))
        now = asyncio.get_running_loop().time()
        lost: list[Lease] = []
        for lease in leases:
            job = worker.held.get(lease) if worker is not None else None
            if worker is None or job is None or job.lost:
                lost.append(lease)
            else:
                worker.ends[lease] = now + worker.lease
        return lost

    # -- time --

    def tidy(self, now: float) -> None:
        """Give back late jobs, and close workers that no request has used for some time."""
        for key, worker in list(self._workers.items()):
            worker.expire(now)
            if worker.jobs.error is not None and not worker.wanted:
                del self._workers[key]
            elif not worker.wanted:
                worker.resize()
                if not worker.held and now - worker.used > IDLE:
                    del self._workers[key]
                    asyncio.ensure_future(closed(worker.jobs))  # noqa: RUF006

    async def close(self) -> None:
        """Give back all jobs."""
        workers, self._workers = list(self._workers.values()), {}
        await asyncio.gather(*(closed(each.jobs) for each in workers))


async def closed(jobs: SharedSubscription) -> None:
    with suppress(OncecastError):
        await jobs.close()
