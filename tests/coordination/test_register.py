"""The register: processes sign in and out, and its topic stays small."""

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
from oncecast.coordination.register import (
    Entry,
    Gone,
    Here,
    Members,
    Present,
    Register,
    Roll,
    Roster,
)
from oncecast.kernel.protocol import NodeId
from tests.client.serving import run

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
TOPIC = "members/default"


def members(*entries: Here | Gone | Roll) -> Members:
    return Members(Entry(offset, 0, each) for offset, each in enumerate(entries))


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([Here(A), Here(B), Here(C)], Roster((A, B), (A, B, C))),
        ([Here(A), Here(B), Gone(A), Here(C)], Roster((A, B), (B, C))),
        ([Here(A), Gone(A), Here(B)], Roster((B,), (B,))),
        ([Here(A), Here(A), Gone(C)], Roster((A,), (A,))),
        ([Here(A), Here(B), Gone(A), Here(A)], Roster((A, B), (B, A))),
    ],
)
def test_first_processes_to_sign_in_to_an_empty_group_are_its_founders(
    entries: list[Here | Gone], found: Roster
) -> None:
    """DDS-4"""
    assert members(*entries).roster(2) == found


def test_late_removal_keeps_the_next_process_at_the_same_address() -> None:
    """DDS-4"""
    found = members(Here(A, "old"), Here(A, "new"), Gone(A, "old"))
    assert found.roster(1) == Roster((A,), (A,))
    assert not members(Here(A, "old"), Gone(A)).present


def test_roll_has_the_same_effect_as_the_entries_it_replaces() -> None:
    """DDS-4: the roll may be at any position, and entries may be added while it is written."""
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
            records = [*entries[:at], roll, *entries[at:]]
            kept = [Entry(offset, 0, each) for offset, each in enumerate(records)][upto + 1 :]
            assert Members(kept).roster(3) == whole.roster(3)


def test_late_roll_does_not_restore_processes_from_an_earlier_group() -> None:
    """DDS-4: two processes sign out at once. One drops all entries, then the other adds a Roll."""
    before = members(Here(A, "1"), Here(B, "2"), Gone(B, "2"))
    late = Roll(2, tuple(before.first), tuple(before.present.values()))
    emptied = [Entry(4, 0, Here(C, "3")), Entry(5, 0, late)]  # Gone(A, "1") was at offset 3
    assert Members(emptied).roster(1) == Roster((C,), (C,))
    assert Members([Entry(4, 0, late)]).roster(1) == Roster((), ())


def test_message_without_an_entry_does_not_change_the_roster() -> None:
    """DDS-4: such a message may be the first one that is kept."""
    roll = Roll(2, (A,), (Present(A, "1", "", 0),))
    found = Members([Entry(3, 0, None), Entry(4, 0, roll), Entry(5, 0, Here(B, "2"))])
    assert found.roster(2) == Roster((A, B), (A, B))


def test_entries_from_the_previous_version_can_be_read() -> None:
    """DDS-4"""
    decoder = msgspec.json.Decoder(Here | Gone | Roll)
    assert decoder.decode(b'["Here","a"]') == Here(A)
    assert decoder.decode(b'["Gone","a"]') == Gone(A)


# -- in a cluster --


async def kept(client: oncecast.Client) -> int:
    view = await client.describe(TOPIC)
    return view.next - view.first


def test_register_topic_is_empty_after_all_processes_sign_out(tmp_path: Path) -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            for _ in range(3):
                one, other = Register(client, ""), Register(client, "")
                await one.sign_in(A, 1)
                assert (await other.sign_in(B, 1)).founders == (A,)
                await one.sign_out(A)
                await other.sign_out(B)
                assert await kept(client) == 0

    run(scenario())


def test_register_topic_stays_short_while_processes_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-4: one process stays while short-lived processes join and leave."""
    monkeypatch.setattr(register, "SLACK", 4)

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await Register(client, "").sign_in(A, 1)
            for _ in range(12):
                command = Register(client, "")
                assert await command.sign_in(B, 1) == Roster((A,), (A, B))
                await command.sign_out(B)
                assert await kept(client) <= 2 * 2 + 4 + 3
            assert Members(await Register(client, "").entries()).roster(1) == Roster((A,), (A,))

    run(scenario())


def test_register_topic_from_the_previous_version_is_shortened(tmp_path: Path) -> None:
    """DDS-4: the entries count, and the next process to sign in shortens the topic."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic(TOPIC, oncecast.Policy(keep_all=True))
            for entry in (Here(B), Gone(B), Here(C)):
                await client.put(TOPIC, msgspec.json.encode(entry))
            found = await Register(client, "").sign_in(A, 1)
            assert found == Roster((C,), (C, A))
            assert await kept(client) == 2

    run(scenario())


# -- processes that have exited --


def ended_address() -> NodeId:
    """Return the address of a process that has exited: its socket is closed."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return NodeId(f"127.0.0.1:{sock.getsockname()[1]}")


def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_answer(member: NodeId) -> bool:
        raise TimeoutError

    monkeypatch.setattr(register, "refuses", no_answer)


def signing(
    tmp_path: Path, crashed: Here, then: Callable[[Roster], None], *, age: float = 0.0
) -> None:
    """Let a process sign in `age` seconds after another one crashed."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            other = Register(client, "")
            await other._prepare()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("oncecast.client.parcel.time.time_ns", lambda: ago(age))
                await other._sign(crashed)
            then(await other.sign_in(A, 1))

    run(scenario())


def ago(seconds: float) -> int:
    return int((time.time() - seconds) * 1e9)


def test_crashed_process_on_this_machine_is_removed(tmp_path: Path) -> None:
    """DDS-4: the next process can then start the group again, with a running acceptor."""
    crashed = Here(ended_address(), "incarnation", register.network_id())

    def then(found: Roster) -> None:
        assert found == Roster((A,), (A,))

    signing(tmp_path, crashed, then)


def test_founder_on_another_machine_is_never_removed(tmp_path: Path) -> None:
    """DDS-4: the founder may hold a lock, and a refused connection from another machine proves
    nothing."""
    crashed = Here(ended_address(), "incarnation", "another machine")

    def then(found: Roster) -> None:
        assert found == Roster((crashed.member,), (crashed.member, A))

    signing(tmp_path, crashed, then, age=2 * register.EXPIRE)


def test_silent_founder_on_this_machine_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-4: the founder may only be paused."""
    silent(monkeypatch)
    crashed = Here(B, "incarnation", register.network_id())
    signing(tmp_path, crashed, lambda found: check(found, (B, A)), age=2 * register.EXPIRE)


def check(found: Roster, present: tuple[NodeId, ...]) -> None:
    assert found.present == present


def test_process_that_did_not_found_the_group_is_removed_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-4: the process must be unreachable."""
    silent(monkeypatch)

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            mine = Register(client, "")
            await mine._prepare()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("oncecast.client.parcel.time.time_ns", lambda: ago(register.EXPIRE))
                for each in (Here(C, "1", "elsewhere"), Here(B, "2", "elsewhere")):
                    await mine._sign(each)
            assert (await mine.sign_in(A, 1)).present == (C, A)

    run(scenario())


def test_live_process_is_not_removed(tmp_path: Path) -> None:
    """DDS-4"""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        member = NodeId(f"127.0.0.1:{sock.getsockname()[1]}")
        live = Here(member, "incarnation", register.network_id())
        signing(tmp_path, live, lambda found: check(found, (member, A)), age=2 * register.EXPIRE)


def test_process_listens_before_it_signs_in(tmp_path: Path) -> None:
    """DDS-4: otherwise another process could remove the starting process."""

    async def scenario() -> None:
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

    run(scenario())
