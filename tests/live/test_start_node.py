"""Start a group with deploy/start-node.sh, as containers and Kubernetes do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.replicas import Replica, Replicas, until
from tools.check_docs import ROOT

SCRIPT = ROOT / "deploy" / "start-node.sh"


class Deployed(Replica):
    """A node that runs the script with the same variables as all other nodes."""

    nodes = ""

    def start(self, *join: str) -> None:
        variables = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "ONCECAST_NODES": self.nodes,
            "ONCECAST_SERVE_ADVERTISE": self.address,
            "ONCECAST_SERVE_LISTEN": self.address,
            "ONCECAST_SERVE_DATA": str(self.data),
            "ONCECAST_SERVE_HEARTBEAT": "0.1",
            "ONCECAST_SERVE_SUSPICION": "0.5",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([SCRIPT], env=variables, stderr=log)


class DeployedReplicas(Replicas):
    def __init__(self, directory: Path, count: int) -> None:
        self.all = [Deployed(directory) for _ in range(count)]
        for each in self.all:
            assert isinstance(each, Deployed)
            each.nodes = self.server


@pytest.mark.long
def test_first_node_with_an_empty_disk_joins_the_existing_group(tmp_path: Path) -> None:
    """OPS-4: the first node founds a group once, even if it loses its data directory."""
    group = DeployedReplicas(tmp_path, 3)
    try:
        for each in group.all:
            each.start()
        group.settled()
        first = group.all[0]
        first.end()
        until(
            "the other nodes have a leader",
            lambda: any(others_lead(each) for each in group.all[1:]),
        )
        first.wipe()
        first.start()
        group.settled()
        assert first.has_said("the data directory is empty, but the cluster exists")
    finally:
        for each in group.all:
            each.close()


def others_lead(replica: Replica) -> bool:
    view = replica.look()
    return view is not None and view.quorum


def test_script_names_a_missing_variable() -> None:
    """OPS-4"""
    ended = subprocess.run(
        [SCRIPT], env={"PATH": os.defpath}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "ONCECAST_NODES: set it to the host:port of all nodes" in ended.stderr
