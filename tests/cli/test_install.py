"""Test the result of `pip install .`, built, installed and run outside of the working tree.

Nothing is downloaded: the dependencies come from the environment that runs the tests.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.check_docs import ROOT, blocks

PATIENCE = 120.0


def run(*words: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Run a command in a minimal environment if `path` is given; return its standard output."""
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={"PATH": f"{path}:/usr/bin:/bin", "HOME": str(cwd)} if path else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` directory of a new environment."""
    directory = tmp_path_factory.mktemp("new user")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=ROOT)
    (wheel,) = directory.glob("oncecast-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", directory / "venv", cwd=directory)
    python = directory / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=directory)
    site = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory
        ).strip()
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


@pytest.mark.long
def test_first_readme_example_runs_in_a_new_environment(installed: Path, tmp_path: Path) -> None:
    """SVC-12"""
    page = (ROOT / "README.md").read_text()
    first = next(block for block in blocks(page) if block.language == "python")
    run("python", "-c", first.text, cwd=tmp_path, path=installed)
    where = run(
        "python", "-c", "import oncecast; print(oncecast.__file__)", cwd=tmp_path, path=installed
    )
    assert Path(where.strip()).is_relative_to(installed.parent)


@pytest.mark.long
def test_installed_commands_run_a_node_and_talk_to_it(installed: Path, tmp_path: Path) -> None:
    """CLI-3"""
    environment = {"PATH": f"{installed}:/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(
        [installed / "oncecast", "serve", "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stderr is not None
        found = (re.search(r"listening at=(\S+)", line) for line in node.stderr)
        address = next(each[1] for each in found if each)
        server = ("--server", address)
        try:
            run("oncecast", "sub", "news", *server, cwd=tmp_path, path=installed)
            run("oncecast", "put", "news", "hello", *server, cwd=tmp_path, path=installed)
            got = run("oncecast", "get", "news", *server, cwd=tmp_path, path=installed)
        finally:
            node.send_signal(signal.SIGTERM)
        assert (got, node.wait(PATIENCE)) == ("hello\n", 0)
