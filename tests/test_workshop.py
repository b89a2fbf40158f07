"""Test the project setup: locked versions, import layers, and the command in a shell."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import oncecast
from oncecast.cli import main
from oncecast.errors import ExitStatus
from oncecast.kernel.compiling import build
from tools.check_docs import ROOT
from tools.lock_hashes import locked, pins

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAYERS, PURE = PROJECT["tool"]["importlinter"]["contracts"]


LOCKS = ("requirements.lock", "requirements-docs.lock", "requirements-bench.lock")
LOCKED = re.compile(
    r"[a-z0-9-]+==[0-9][0-9a-z.]*"  # a package name and its version
    r"( \\\n    --hash=sha256:[0-9a-f]{64})+\n"  # the hashes of all its files
)


def locked_versions() -> dict[str, str]:
    return pins((ROOT / "requirements.lock").read_text())


def test_contributors_guide_lists_every_package() -> None:
    reported = (ROOT / "CONTRIBUTING.md").read_text()
    packages = [each.parent.name for each in (ROOT / "oncecast").glob("*/__init__.py")]
    assert [each for each in packages if f"`oncecast/{each}`" not in reported] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_file_has_only_names_versions_and_hashes(lock: str) -> None:
    """SEC-4"""
    text = (ROOT / lock).read_text()
    assert pins(text)
    assert LOCKED.sub("", text).count("\n") == text.count("#") == 1


def test_release_hashes_cover_every_platform_and_only_that_release() -> None:
    def page(name: str) -> str:
        files = (
            f"{name}-1.0.0.tar.gz#sha256=aa",
            f"{name}-1.0-cp311-cp311-win_amd64.whl#sha256=cc",
            f"{name}-1.0-py3-none-any.whl#sha256=bb",
            f"{name}-1.0.1-py3-none-any.whl#sha256=dd",
            f"{name}-1.0-py3-none-any.whl.metadata#sha256=ee",
            f"{name}-1.0.zip#md5=ff",
        )
        return "".join(f'<a href="../../some%2Fwhere/{each}">{each}</a>' for each in files)

    hashed = "# Note.\nbox==1.0 \\\n" + " \\\n".join(
        f"    --hash=sha256:{digest}" for digest in ("aa", "bb", "cc")
    )
    assert locked("# Note.\nbox==1.0\n", page) == f"{hashed}\n"
    assert locked(f"{hashed}\n", page) == f"{hashed}\n"


def test_release_without_files_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no file of box 1\.0"):
        locked("box==1.0\n", lambda name: "<html></html>")


def test_lock_file_pins_the_declared_dependencies() -> None:
    declared = (
        PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    )
    for requirement in map(Requirement, declared):
        assert requirement.specifier.contains(locked_versions()[requirement.name])


def test_packages_below_the_network_and_pure_protocols_are_declared_pure() -> None:
    names = [re.findall(r"\w+", layer) for layer in LAYERS["layers"]]
    below = names[names.index(["network", "simulator"]) + 1 :]
    pure = {name for layer in below for name in layer} | {"history", "client.session"}
    pure |= {"coordination.protocols", "kafka.frontend", "playback", "streams.protocols"}
    assert set(PURE["source_modules"]) == {f"oncecast.{name}" for name in pure}


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["--version"])
    assert end.value.code == ExitStatus.OK
    assert capsys.readouterr().out == f"oncecast {oncecast.__version__} ({build()})\n"


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["--no-such-option"]])
def test_usage_error_exits_with_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert end.value.code == ExitStatus.USAGE
    assert capsys.readouterr().err.startswith("oncecast: ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("serve --dta x", "oncecast serve: unknown argument '--dta'; did you mean --data?"),
        ("serv", "oncecast: unknown command 'serv'; did you mean serve?"),
        ("topic lsit", "oncecast topic: unknown command 'lsit'; did you mean list?"),
        ("get news --cuont=3", "did you mean --count?"),
        ("get news more", "oncecast get: unknown argument 'more'; see `oncecast get --help`"),
        ("subs", "oncecast subs: specify a command: list, lag, seek; see `oncecast subs --help`"),
        ("get news --timeout -1", "argument --timeout: -1 is not a time in seconds; use 0 or more"),
    ],
)
def test_usage_error_is_one_line_with_a_remedy(
    words: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-1"""
    with pytest.raises(SystemExit) as end:
        main.main(words.split())
    assert end.value.code == ExitStatus.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(error)


def test_help_names_the_unit_of_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["serve", "--help"])
    text = capsys.readouterr().out
    for unit in ("--client-rate BYTES", "--cluster-secret-file FILE", "--log-level LEVEL"):
        assert unit in text


def test_interrupt_while_a_command_loads_prints_no_traceback(tmp_path: Path) -> None:
    """CLI-3"""
    (tmp_path / "argparse.py").write_text("import os; os.kill(os.getpid(), 2)")
    ended = subprocess.run(
        [sys.executable, "-m", "oncecast", "--version"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_interrupted_command_exits_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=interrupted)
    monkeypatch.setattr(main, "build_parser", lambda words: parser)
    assert main.main([]) == ExitStatus.INTERRUPTED


def command_that(work: str) -> list[str]:
    """Return the command line of a process that does this work."""
    program = (
        "import argparse, os, sys; from oncecast.cli import main;"
        f"parser = argparse.ArgumentParser(); parser.set_defaults(run=lambda arguments: {work});"
        "main.build_parser = lambda words: parser; sys.exit(main.main([]))"
    )
    return [sys.executable, "-c", program]


def test_command_exits_quietly_when_its_reader_stops_reading() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = command_that("print('x' * 10) or 0")
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (ExitStatus.BROKEN_PIPE, b"")


@pytest.mark.long
def test_full_output_device_is_reported_in_one_line() -> None:
    """CLI-3"""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "oncecast", "sim", "list"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == ExitStatus.FAILURE
    assert done.stderr.startswith(b"oncecast: cannot write the output: No space left")
    assert done.stderr.count(b"\n") == 1


def test_files_never_reuse_descriptors_of_closed_standard_streams() -> None:
    """CLI-3: otherwise an error message would overwrite a log file."""
    words = command_that("print(sys.stdin.read()) or os.dup(0) < 3")
    closing = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    assert subprocess.run([*closing, *words]).returncode == ExitStatus.OK


def subcommands(parser: argparse.ArgumentParser) -> list[str]:
    (found,) = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return list(found.choices)


def test_each_command_module_adds_its_listed_commands() -> None:
    """CLI-3: a command line loads only the module for its command."""
    for module, names in main.COMMANDS.items():
        parser = main.build_parser([names[0]])
        assert subcommands(parser) == list(names), module
    assert subcommands(main.build_parser()) == [*chain(*main.COMMANDS.values())]


def test_version_option_does_not_load_any_command() -> None:
    assert main.modules_for(["--version"]) == []


def test_help_does_not_load_slow_modules() -> None:
    program = (
        "import sys; from oncecast.cli.main import build_parser; build_parser().format_help();"
        "print(*sorted({'asyncio', 'msgspec', 'uvloop'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "\n"


def test_client_without_tls_and_state_does_not_load_their_modules() -> None:
    """CLI-3: a short command spends most of its time on loading modules."""
    program = (
        "import sys; import oncecast.client.client, oncecast.network.network;"
        "unused = {'oncecast.storage', 'oncecast.node', 'oncecast.network.tls', 'dataclasses'};"
        "print(*sorted(unused & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "\n"
