"""Signing in and out: who is there, and how little of it stays in the cluster."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import oncecast
from oncecast.coordination import register
from oncecast.coordination.register import Entry, Gone, Here, Members, Register, Roll, Signed
from oncecast.kernel.protocol import NodeId
from tests.client.serving import run

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
TOPIC = "members/default"


def members(*entries: Here | Gone | Roll) -> Members:
    return Members(Entry(offset, 0, each) for offset, each in enumerate(entries))


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([Here(A), Here(B), Here(C)], Signed((A, B), (A, B, C))),
        ([Here(A), Here(B), Gone(A), Here(C)], Signed((A, B), (B, C))),
        ([Here(A), Gone(A), Here(B)], Signed((B,), (B,))),
        ([Here(A), Here(A), Gone(C)], Signed((A,), (A,))),
        ([Here(A), Here(B), Gone(A), Here(A)], Signed((A, B), (B, A))),
    ],
)
def test_founders_are_the_first_since_nobody_was_there(
    entries: list[Here | Gone], found: Signed
) -> None:
    """DDS-4"""
    assert members(*entries).signed(2) == found


def test_late_removal_of_an_earlier_process_spares_the_one_that_took_its_address() -> None:
    """DDS-4"""
    found = members(Here(A, "old"), Here(A, "new"), Gone(A, "old"))
    assert found.signed(1) == Signed((A,), (A,))
    assert not members(Here(A, "old"), Gone(A)).present


def test_roll_has_the_effect_of_the_entries_that_it_replaces() -> None:
    """DDS-4: wherever it stands, and whatever was signed while it was written."""
    entries: list[Here | Gone] = [
        Here(A, "1"),
        Here(B, "2"),
        Gone(A, "1"),
        Here(C, "3"),
        Gone(B, "2"),
        Here(A, "4"),
    ]
    whole = members(*entries)
    for upto in range(len(entries)):
        before = members(*entries[: upto + 1])
        roll = Roll(upto, tuple(before.first), tuple(before.present.values()))
        for at in range(upto + 1, len(entries) + 1):
            kept = [Entry(offset, 0, each) for offset, each in enumerate(entries)][upto + 1 :]
            kept.insert(at - upto - 1, Entry(99, 0, roll))
            assert Members(kept).signed(3) == whole.signed(3)


def test_entry_of_the_version_before_is_read() -> None:
    """DDS-4"""
    decoder = msgspec.json.Decoder(Here | Gone | Roll)
    assert decoder.decode(b'["Here","a"]') == Here(A)
    assert decoder.decode(b'["Gone","a"]') == Gone(A)


# In a cluster


async def kept(client: oncecast.Client) -> int:
    view = await client.describe(TOPIC)
    return view.next - view.first


def test_process_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    """DDS-4"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            for _ in range(3):
                one, other = Register(client, ""), Register(client, "")
                await one.sign_in(A, 1)
                assert (await other.sign_in(B, 1)).founders == (A,)
                await one.sign_out(A)
                await other.sign_out(B)
                assert await kept(client) == 0

    run(story())


def test_topic_stays_short_while_one_process_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-4: a long-lived reader, and a command now and then."""
    monkeypatch.setattr(register, "SLACK", 4)

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await Register(client, "").sign_in(A, 1)
            for _ in range(12):
                command = Register(client, "")
                assert await command.sign_in(B, 1) == Signed((A,), (A, B))
                await command.sign_out(B)
                assert await kept(client) <= 2 * 2 + 4 + 3
            assert Members(await Register(client, "").entries()).signed(1) == Signed((A,), (A,))

    run(story())


def test_topic_of_the_version_before_is_kept_short_too(tmp_path: Path) -> None:
    """DDS-4: it keeps all until somebody signs in, and what it holds counts."""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic(TOPIC, oncecast.Policy(keep_all=True))
            for entry in (Here(B), Gone(B), Here(C)):
                await client.put(TOPIC, msgspec.json.encode(entry))
            found = await Register(client, "").sign_in(A, 1)
            assert found == Signed((C,), (C, A))
            assert await kept(client) == 2

    run(story())


# Processes that have ended


def ended_address() -> NodeId:
    """The address of a process that has ended: its socket is closed."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return NodeId(f"127.0.0.1:{sock.getsockname()[1]}")


def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_answers(member: NodeId) -> bool:
        raise TimeoutError

    monkeypatch.setattr(register, "refuses", nobody_answers)


def signing(
    tmp_path: Path, crashed: Here, then: Callable[[Signed], None], *, age: float = 0.0
) -> None:
    """A process has crashed so many seconds ago; another one signs in."""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            other = Register(client, "")
            await other._prepare()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("oncecast.client.parcel.time.time_ns", lambda: ago(age))
                await other._sign(crashed)
            then(await other.sign_in(A, 1))

    run(story())


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1e9)


def test_crashed_process_of_this_machine_is_removed(tmp_path: Path) -> None:
    """DDS-4: so the next one begins the group again, with an acceptor that is there."""
    crashed = Here(ended_address(), "life", register.place())

    def then(found: Signed) -> None:
        assert found == Signed((A,), (A,))

    signing(tmp_path, crashed, then)


def test_founder_elsewhere_is_never_taken_for_crashed(tmp_path: Path) -> None:
    """DDS-4: it may hold a lock, and a refused connection from another machine proves nothing."""
    crashed = Here(ended_address(), "life", "another machine")

    def then(found: Signed) -> None:
        assert found == Signed((crashed.member,), (crashed.member, A))

    signing(tmp_path, crashed, then, age=2 * register.EXPIRE)


def test_founder_of_this_machine_that_is_silent_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-4: it may only be stopped."""
    silent(monkeypatch)
    crashed = Here(B, "life", register.place())
    signing(tmp_path, crashed, lambda found: check(found, (B, A)), age=2 * register.EXPIRE)


def check(found: Signed, present: tuple[NodeId, ...]) -> None:
    assert found.present == present


def test_process_that_is_no_founder_is_removed_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-4: if it cannot be reached."""
    silent(monkeypatch)

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            mine = Register(client, "")
            await mine._prepare()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("oncecast.client.parcel.time.time_ns", lambda: ago(register.EXPIRE))
                for each in (Here(C, "1", "elsewhere"), Here(B, "2", "elsewhere")):
                    await mine._sign(each)
            assert (await mine.sign_in(A, 1)).present == (C, A)

    run(story())


def test_live_process_is_not_removed(tmp_path: Path) -> None:
    """DDS-4"""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        member = NodeId(f"127.0.0.1:{sock.getsockname()[1]}")
        live = Here(member, "life", register.place())
        signing(tmp_path, live, lambda found: check(found, (member, A)), age=2 * register.EXPIRE)


def test_process_listens_before_it_signs_in(tmp_path: Path) -> None:
    """DDS-4: or another one could take it for crashed while it starts."""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await Register(client, "")._prepare()
            address = ended_address()
            node = oncecast.join(address, through=client, founders=2)
            joining = asyncio.create_task(node.__aenter__())
            entries = Register(client, "").entries
            while address not in Members(await entries()).present:
                pass
            assert not await register.refuses(address)
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
            assert not Members(await entries()).present
            assert await register.refuses(address)

    run(story())
