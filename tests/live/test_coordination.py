"""Test the wiring, not the logic, of coordination over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from itertools import chain
from typing import Any

import pytest

from oncecast.coordination import (
    Fence,
    Lapse,
    Node,
    NotDeposited,
    NotReached,
    Stale,
    Stopped,
    blocking,
    join,
)
from oncecast.errors import CannotListen
from oncecast.network.network import run

pytestmark = pytest.mark.long

FAST: dict[str, Any] = {"heartbeat": 0.05, "suspect_after": 0.4, "lease": 1.0}


def free_addresses(count: int) -> list[str]:
    with ExitStack() as reserved:
        made = [
            reserved.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return sorted(f"127.0.0.1:{each.getsockname()[1]}" for each in made)


@asynccontextmanager
async def three() -> AsyncIterator[list[Node]]:
    """Yield a group whose members are all acceptors."""
    addresses = free_addresses(3)
    async with AsyncExitStack() as stack:
        nodes = [join(each, peers=addresses, **FAST) for each in addresses]
        for node in nodes:
            await stack.enter_async_context(node)
        for node in nodes:
            await node.group.wait_for_view_size(3)
        yield nodes


def within(seconds: float, scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scenario

    run(bounded())


def test_members_find_each_other_through_one_contact_and_agree_on_a_leader() -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with (
            join("127.0.0.1:0", **FAST) as founder,
            join("127.0.0.1:0", peers=[founder.me], **FAST) as second,
            join("127.0.0.1:0", peers=[founder.me], **FAST) as third,
        ):
            views = [await node.group.wait_for_view_size(3) for node in (founder, second, third)]
            assert len(set(views)) == 1
            lowest = min(views[0])
            for node in (founder, second, third):
                async for leader in node.election.watch():
                    if leader == lowest:
                        break
                assert node.election.leading == (node.me == lowest)

    within(30.0, scenario())


def test_next_member_leads_when_the_leader_leaves() -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with three() as (first, second, third):
            await first.election.wait_until_leading()
            first.group.leave()
            await second.election.wait_until_leading()
            async for view in third.group.watch():
                if first.me not in view:
                    break

    within(30.0, scenario())


def test_error_for_a_small_group_lists_its_members() -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with join("127.0.0.1:0", **FAST) as alone:
            with pytest.raises(NotReached, match="has 1 of 3 members: 127"):
                await alone.group.wait_for_view_size(3, timeout=0.2)

    within(30.0, scenario())


@pytest.mark.parametrize("name", ["heartbeat", "suspect_after", "lease"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_invalid_time_is_rejected(name: str, value: float) -> None:
    with pytest.raises(
        ValueError, match=f"{name} is .* s; use a positive, finite number of seconds"
    ):
        join("127.0.0.1:0", **{**FAST, name: value})


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_negative_or_infinite_grace_is_rejected(value: float) -> None:
    """DDS-4"""
    with pytest.raises(
        ValueError, match=r"grace is .* s; use 0 or a positive, finite number of seconds"
    ):
        join("127.0.0.1:0", grace=value)


def test_second_member_with_the_same_address_is_rejected() -> None:
    async def scenario() -> None:
        async with join("127.0.0.1:0", **FAST) as one:
            with pytest.raises(CannotListen, match="free the port"):
                async with join(one.me, **FAST):
                    pass

    within(30.0, scenario())


def test_lock_has_one_holder_at_a_time_and_increasing_tokens() -> None:
    """DDS-4"""

    async def scenario() -> None:
        fence = Fence()
        inside = 0
        async with three() as nodes:

            async def work(node: Node) -> None:
                nonlocal inside
                for _ in range(3):
                    async with node.lock("door") as lock:
                        inside += 1
                        assert inside == 1
                        fence.admit(lock.token)
                        await asyncio.sleep(0)
                        inside -= 1

            await asyncio.gather(*(work(node) for node in nodes for _ in range(2)))
            assert fence.highest >= 18
            with pytest.raises(Stale):
                fence.admit(1)

    within(60.0, scenario())


def test_held_lock_is_renewed_and_lapses_without_a_majority() -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            addresses = free_addresses(3)
            node = await stack.enter_async_context(join(addresses[0], peers=addresses, **FAST))
            async with AsyncExitStack() as majority:
                for each in addresses[1:]:
                    await majority.enter_async_context(join(each, peers=addresses, **FAST))
                lock = node.lock("door")
                token = await lock.acquire()
                async for renewed in lock.watch():
                    if renewed >= token + 2:
                        break
            async for renewed in lock.watch():
                if renewed == 0:
                    break
            with pytest.raises(Lapse, match="lock 'door' is no longer held"):
                await lock.release()

    within(60.0, scenario())


def test_each_queue_element_goes_to_one_process() -> None:
    """DDS-5"""

    async def scenario() -> None:
        async with three() as nodes:
            jobs = [b"job %d" % index for index in range(60)]
            for at, job in enumerate(jobs):
                await nodes[at % 3].queue("jobs").enqueue(job)

            async def consume(node: Node) -> list[bytes]:
                taken = []
                while (job := await node.queue("jobs").sdequeue(timeout=1.0)) is not None:
                    taken.append(job)
                return taken

            taken = await asyncio.gather(*(consume(node) for node in nodes))
            assert sorted(chain(*taken)) == sorted(jobs)
            assert all(node.queue("jobs").empty for node in nodes)
            assert await nodes[0].queue("jobs").dequeue() is None

    within(60.0, scenario())


def test_queue_element_that_arrives_after_the_timeout_is_not_lost() -> None:
    """DDS-5"""

    async def scenario() -> None:
        async with join("127.0.0.1:0", **FAST) as node:
            queue = node.queue("jobs")
            late = asyncio.create_task(queue.sdequeue(timeout=0))
            gone = asyncio.create_task(queue.sdequeue())
            await asyncio.sleep(0)
            queue.answered(1, b"late")  # before the loop checks the timeout
            queue.answered(2, b"gone")
            gone.cancel()
            assert await late == b"late"
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert await queue.sdequeue(timeout=20.0) == b"gone"

    within(30.0, scenario())


def test_queue_element_outlives_the_process_that_added_it() -> None:
    """DDS-5"""

    async def scenario() -> None:
        async with join("127.0.0.1:0", **FAST) as keeper:
            async with join("127.0.0.1:0", peers=[keeper.me], **FAST) as guest:
                with pytest.raises(NotDeposited, match="no acceptor is up"):
                    await guest.queue("jobs").deposit(b"too early")
                await guest.group.wait_for_view_size(2)
                await guest.queue("jobs").deposit(b"job")
            assert keeper.queue("jobs").peek(5) == [b"job"]
            async with join("127.0.0.1:0", peers=[keeper.me], **FAST) as guest:
                assert await guest.queue("jobs").sdequeue(timeout=20.0) == b"job"

    within(30.0, scenario())


def test_process_from_another_group_is_refused() -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with (
            join("127.0.0.1:0", group="one", **FAST) as keeper,
            join("127.0.0.1:0", peers=[keeper.me], group="one", **FAST) as friend,
            join("127.0.0.1:0", peers=[keeper.me], group="other", **FAST) as stranger,
        ):
            await friend.group.wait_for_view_size(2)
            with pytest.raises(NotReached, match="has 1 of 2 members"):
                await stranger.group.wait_for_view_size(2, timeout=0.2)
            assert keeper.group.view == friend.group.view

    within(30.0, scenario())


def test_waiting_call_fails_when_the_node_stops() -> None:
    async def scenario() -> None:
        node = join("127.0.0.1:0", **FAST)
        async with node:
            waiting = asyncio.create_task(node.queue("jobs").sdequeue())
            await asyncio.sleep(0)
        with pytest.raises(Stopped):
            await waiting

    within(30.0, scenario())


def test_stopped_node_neither_holds_locks_nor_leads() -> None:
    """DDS-4: work under the lock must end."""

    async def scenario() -> None:
        async with join("127.0.0.1:0", **FAST) as node:
            lock = node.lock("door")
            token = await lock.acquire()
            await node.election.wait_until_leading()
        assert (token, lock.held, node.election.leading) == (1, False, False)
        with pytest.raises(Lapse, match="lease with token 1 has expired"):
            lock.token  # noqa: B018

    within(30.0, scenario())


def test_blocking_api_works_like_the_async_api() -> None:
    """DDS-4 DDS-5"""
    with (
        blocking.join("127.0.0.1:0", **FAST) as one,
        blocking.join("127.0.0.1:0", peers=[one.me], **FAST) as other,
    ):
        view = one.group.wait_for_view_size(2)
        assert other.group.wait_for_view_size(2) == view == one.group.view
        lowest = one if one.me == view[0] else other
        lowest.election.wait_until_leading()
        assert lowest.election.leading
        assert lowest.election.leader == lowest.me
        with one.lock("door") as lock:
            first = lock.token
            assert lock.held
        with other.lock("door") as lock:
            assert lock.token > first
        one.queue("jobs").enqueue(b"job")
        assert other.queue("jobs").sdequeue(timeout=20.0) == b"job"
        assert other.queue("jobs").dequeue() is None
        assert other.queue("jobs").empty
