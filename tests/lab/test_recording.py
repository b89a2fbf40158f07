"""RecordedClient records an application's operations and answers as a checkable history."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.history import History, Operation, Recorder, check
from oncecast.history.file import Writer, read, write
from oncecast.history.operation import digests_of_values
from oncecast.lab.recording import RecordedClient
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.wire.batch import encode
from oncecast.wire.retention import Policy
from tests.client.serving import run, serving

KEEP = Policy(keep_all=True)


def of_kind(history: History, *kinds: str) -> History:
    return [each for each in history if each.kind in kinds]


def only(history: History, kind: str) -> Operation:
    (found,) = of_kind(history, kind)
    return found


async def topics_and_puts(client: RecordedClient) -> None:
    await client.create_topic("t", KEEP)
    await client.set_policy("t", KEEP)
    await client.put("t", b"a")
    await client.put_many("t", [b"b", b"c"])
    await client.describe("t")
    async for _ in client.scan("t"):
        pass
    packed = encode([b"d"], timestamps=1)
    await client.stage("source", 0, "part", "t", 1, packed)
    await client.publish_staged("source", 0, ["part"])
    await client.delete_topic("t")


def test_commands_and_puts_are_recorded_with_their_answers(tmp_path: Path) -> None:
    """SVC-2 SVC-7"""
    recorder = Recorder(time.monotonic)

    async def scenario() -> None:
        async with serving(tmp_path) as node, RecordedClient(recorder, node, name="ann") as client:
            await topics_and_puts(client)

    run(scenario())
    history = recorder.history
    kinds = [each.kind for each in history]
    # After the policy of a topic, the client looks whether the topic has partitions.
    assert kinds[:5] == ["create", "policy", "look", "put", "put"]
    assert kinds[-3:] == ["stage", "publish", "delete"]
    assert set(kinds[5:-3]) == {"look", "scan"}
    assert all(each.done and each.topic == "t" for each in history)
    assert len({each.client for each in history}) == 1
    assert history[0].client.startswith("ann~")
    _, look = of_kind(history, "look")
    created, scanned = history[0], of_kind(history, "scan")
    assert (created.policy, created.already, created.topic_id) == (KEEP, False, look.topic_id)
    puts = [(each.offset, each.kept, each.digests) for each in of_kind(history, "put")]
    assert puts == [
        (0, True, digests_of_values([b"a"])),
        (1, True, digests_of_values([b"b", b"c"])),
    ]
    assert (look.first, look.next, look.policy, look.views) == (0, 3, KEEP, ())
    assert b"".join(each.digests for each in scanned) == digests_of_values([b"a", b"b", b"c"])
    stage, publish = only(history, "stage"), only(history, "publish")
    for each in (stage, publish):
        assert (each.source, each.number, each.parts) == ("source", 0, ("part",))
    assert stage.digests == digests_of_values([b"d"])
    assert (publish.offset, publish.count, publish.already) == (3, 1, False)
    times = [at for each in history for at in (each.call, each.returned)]
    assert times == sorted(times, key=lambda at: at or 0.0)  # the operations do not overlap


def test_reader_operations_are_recorded_with_their_answers(tmp_path: Path) -> None:
    """SVC-3"""
    recorder = Recorder(time.monotonic)

    async def scenario() -> None:
        async with serving(tmp_path) as node, RecordedClient(recorder, node, name="ann") as client:
            news = await client.subscribe("t", "s", auto_ack=False)
            await client.put_many("t", [b"a", b"b", b"c"])
            first = await news.get(timeout=10)
            more = await news.get_many(2, timeout=10)
            assert first is not None
            news.ack(first)
            await news.flush()
            news.nack(more[-1])
            async for message in news:
                assert message.redelivered
                break
            await news.seek(oncecast.from_offset(2))
            await news.close()
            await client.unsubscribe("t", "s")

    run(scenario())
    history = recorder.history
    subscribed, attach = only(history, "subscribe"), only(history, "attach")
    assert (subscribed.subscription, subscribed.offset, subscribed.already) == ("s", 0, False)
    assert (attach.offset, attach.next) == (0, 0)
    assert attach.epoch
    of_reader = of_kind(history, "get", "ack", "again", "seek", "leave")
    assert {each.reader for each in of_reader} == {attach.reader}
    got = [(each.offset, each.marked, each.digests) for each in of_kind(history, "get")]
    delivered = b"".join(digests for _, marked, digests in got if not marked)
    assert delivered == digests_of_values([b"a", b"b", b"c"])
    assert got[-1] == (2, 1, digests_of_values([b"c"]))
    assert [each.upto for each in of_kind(history, "ack") if each.done] == [1]
    again = only(history, "again")
    assert (again.offset, again.upto, again.returned) == (2, 3, None)  # a nack gets no answer
    assert (only(history, "seek").offset, only(history, "leave").done) == (2, True)
    assert not only(history, "unsubscribe").already
    assert check(history).ok


def test_refused_call_is_recorded_with_its_error_code(tmp_path: Path) -> None:
    """SVC-7"""
    recorder = Recorder(time.monotonic)

    async def scenario() -> None:
        async with serving(tmp_path) as node, RecordedClient(recorder, node) as client:
            await client.create_topic("t")
            with pytest.raises(errors.TopicExists):
                await client.create_topic("t", KEEP)
            with pytest.raises(errors.NotSubscribed):
                await client.read("t", "nobody")
            with pytest.raises(errors.NoSuchTopic):
                await client.describe("none")
            with pytest.raises(errors.NotStaged):
                await client.publish_staged("source", 0, ["part"])

    run(scenario())
    refused = [(each.kind, each.error) for each in recorder.history if each.refused]
    assert refused == [
        ("create", "topic-exists"),
        ("attach", "not-subscribed"),
        ("look", "no-such-topic"),
        ("publish", "not-staged"),
    ]
    assert check(recorder.history).ok


@pytest.mark.long
def test_call_without_an_answer_is_recorded_as_unknown(tmp_path: Path) -> None:
    """SVC-7: the node is down, so the outcome of the call is unknown."""
    recorder = Recorder(time.monotonic)

    async def scenario() -> None:
        node = Server(Settings(data=str(tmp_path / "node"), listen="127.0.0.1:0"))
        async with node:
            client = await RecordedClient(recorder, node.me, timeout=0.1)
            await client.put("t", b"a")
        with pytest.raises(errors.TimedOut):
            await client.put("t", b"b", timeout=0.05)
        with pytest.raises(errors.TimedOut):
            await client.create_topic("u")
        with pytest.raises(errors.OncecastError):
            await client.close()

    run(scenario())
    outcomes = [(each.kind, each.done, each.error) for each in recorder.history]
    assert outcomes == [("put", True, ""), ("put", False, ""), ("create", False, "")]
    assert [each.returned for each in recorder.history[1:]] == [None, None]
    assert check(recorder.history).ok


@pytest.mark.long
def test_history_check_reads_recordings_from_several_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-3: each client has its own file. An altered or missing message is found."""
    ann, bob = tmp_path / "ann.jsonl", tmp_path / "bob.jsonl"

    async def scenario() -> None:
        with ann.open("wb", buffering=0) as one, bob.open("wb", buffering=0) as other:
            async with (
                serving(tmp_path) as node,
                RecordedClient(Recorder(time.monotonic, Writer(one)), node) as writer,
                RecordedClient(Recorder(time.monotonic, Writer(other)), node) as reader,
            ):
                news = await reader.subscribe("t", "s")
                await asyncio.gather(*[writer.put("t", b"%d" % each) for each in range(20)])
                await writer.describe("t")
                for _ in range(20):
                    assert await news.get(timeout=10) is not None

    run(scenario())
    assert main(["history", "check", str(ann), str(bob)]) == ExitStatus.OK
    capsys.readouterr()
    history = read(bob.read_bytes().splitlines(keepends=True))
    altered = of_kind(history, "get")[0]
    altered.digests = digests_of_values([b"never put"]) + altered.digests[4:]
    with bob.open("wb") as file:
        write(history, file)
    assert main(["history", "check", str(ann), str(bob)]) == ExitStatus.FAILURE
    assert "not linearizable" in capsys.readouterr().out
    altered.offset, altered.digests = altered.offset + 1, altered.digests[4:]
    with bob.open("wb") as file:
        write(history, file)
    assert main(["history", "check", str(ann), str(bob)]) == ExitStatus.FAILURE
    assert "offset 0 is due, but 1 was delivered" in capsys.readouterr().out


def test_consecutive_gets_share_a_recorded_operation(tmp_path: Path) -> None:
    """SVC-3: another operation in between separates them."""
    recorder = Recorder(time.monotonic)

    async def scenario() -> None:
        async with serving(tmp_path) as node, RecordedClient(recorder, node) as client:
            news = await client.subscribe("t", "s", auto_ack=False)
            await client.put_many("t", [b"%d" % each for each in range(300)])
            for _ in range(150):
                await news.get(timeout=10)
            await client.describe("t")
            for _ in range(150):
                await news.get(timeout=10)

    run(scenario())
    got = of_kind(recorder.history, "get")
    assert sum(each.messages for each in got) == 300
    assert len(got) < 300
    look = recorder.history.index(only(recorder.history, "look"))
    before = [each for each in recorder.history[:look] if each.kind == "get"]
    assert sum(each.messages for each in before) == 150
