"""OPS-2: a group is upgraded node by node to a program that knows a higher feature level."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from oncecast import blocking
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.wire import levels
from tests.live.replicas import Replica, replicas, until

OLD, NEW = "oncecast", "tests.live.next_level"
NEXT = levels.KNOWN + 1


def level_at(replica: Replica) -> int:
    view = replica.look()
    return view.level if view is not None else 0


def test_level_rises_after_the_last_node_is_upgraded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients keep working, and the old program can no longer open the data or join."""
    with replicas(tmp_path, 3) as group:
        with blocking.connect(group.server, name="ann") as client:
            reader = client.subscribe("t", "s")
            for number, replica in enumerate(group.all):
                assert level_at(replica) == levels.KNOWN
                client.put("t", b"%d" % number)
                replica.end(signal.SIGTERM)
                replica.program = NEW
                group.restart(replica)
            last = group.all[2]
            until("the level rises", lambda: level_at(last) == NEXT or None)
            client.put("t", b"3")
            found = [reader.get(timeout=10.0) for _ in range(4)]
            assert [each.value for each in found if each] == [b"0", b"1", b"2", b"3"]
        assert main(("cluster", "status", "--server", group.server, "--json")) == ExitStatus.OK
        status = json.loads(capsys.readouterr().out)
        assert status["level"] == NEXT
        assert {each["level"] for each in status["members"]} - {None} == {NEXT}

        last.end(signal.SIGTERM)
        last.program = OLD
        last.start()
        assert last.wait() == ExitStatus.FAILURE
        assert last.has_said(f"level {NEXT}; .* up to {levels.KNOWN}; upgrade oncecast")

        last.wipe()
        last.start(group.all[0].address)
        said = f"not_seated .*knows_level={levels.KNOWN} group_level={NEXT} remedy=.*upgrade"
        until("the old node reports why", lambda: last.has_said(said) or None)
        leader = group.named(str(status["leader"])) if status["leader"] != last.address else None
        others = [leader] if leader is not None else group.all[:2]
        until("the leader reports it", lambda: any(each.has_said(said) for each in others) or None)
