"""Run the setup in docs/security.md as a new user would."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncecast.cli.cluster.local import free_ports
from oncecast.errors import ExitStatus
from tools.check_docs import ROOT, blocks, by_heading

PATIENCE = 60.0
PAGE = by_heading((ROOT / "docs" / "security.md").read_text())
SETUP = PAGE["Set up three nodes in five minutes"]


class Machine:
    """The directory and shell environment in which the commands from the page run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.ports = dict(zip(("7401", "7402", "7403"), free_ports(3, 0), strict=True))
        self.nodes: list[subprocess.Popen[str]] = []

    def type(self, line: str) -> tuple[int, str, str]:
        """Run one line. Return its status, output and errors; a node stays in the background."""
        for port, free in self.ports.items():
            line = line.replace(f":{port}", f":{free}")
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value
            return 0, "", ""
        assert words[0] == "oncecast"
        if words[1] == "serve":
            self.serve(words[1:])
            return 0, "", ""
        ended = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return ended.returncode, ended.stdout, ended.stderr

    def serve(self, words: list[str]) -> None:
        node = subprocess.Popen(
            [sys.executable, "-m", "oncecast", *words],
            cwd=self.directory,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.nodes.append(node)
        assert node.stderr is not None
        seen = []
        for line in node.stderr:
            seen.append(line)
            if "listening at=" in line:
                return
        raise AssertionError("".join(seen))

    def end(self) -> None:
        for node in self.nodes:
            node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.communicate(timeout=PATIENCE)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.end()


@pytest.mark.long
def test_documented_setup_with_three_nodes_and_two_users_works(machine: Machine) -> None:
    """SEC-1 SEC-2 SEC-4"""
    consoles = [block.text for block in blocks(SETUP) if block.language == "console"]
    typed = [line for text in consoles for line in re.findall(r"^\$ (.+)$", text, re.MULTILINE)]
    assert sum("oncecast serve" in line for line in typed) == 3
    *working, denied = typed
    for line in working:
        status, out, err = machine.type(line)
        assert status == ExitStatus.OK, (line, out, err)
        if line.startswith("oncecast get"):
            assert out == "hello\n"
    status, _, err = machine.type(denied)
    assert status == ExitStatus.NOT_ALLOWED, err
    audits = "".join(file.read_text() for file in machine.directory.glob("*.audit"))
    assert '"principal": "ann", "verb": "admin", "object": "user bob", "result": "ok"' in audits
    assert '"principal": "bob", "verb": "put", "object": "news", "result": "denied"' in audits
    # A client without a certificate does not get in.
    status, _, _ = machine.type("oncecast topic list --tls-ca certs/ca.pem --timeout 2")
    assert status != ExitStatus.OK
