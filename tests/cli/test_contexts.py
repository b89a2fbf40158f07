"""OPS-3: saved connections."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from oncecast.cli.contexts import apply_context, contexts_path, read_contexts
from oncecast.cli.main import main
from oncecast.errors import ExitStatus, InvalidArgument

ADDRESS = "10.0.0.1:7400"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ONCECAST_SERVER", raising=False)
    path = tmp_path / "some" / "contexts.json"
    monkeypatch.setenv("ONCECAST_CONTEXTS", str(path))
    return path


def options(**given: Any) -> argparse.Namespace:
    unset = dict.fromkeys(("server", "tls", "tls_ca", "user", "password_file", "token_file"))
    return argparse.Namespace(**({"context": None, "cluster": "oncecast"} | unset | given))


def applied(environment: dict[str, str], **given: Any) -> dict[str, Any]:
    arguments = options(**given)
    apply_context(arguments, environment)
    found = vars(arguments)
    return {name: value for name, value in found.items() if value not in (None, "oncecast")}


def add(*words: str) -> None:
    assert main(["context", "add", *words]) == ExitStatus.OK


def test_first_context_is_used_until_another_is_chosen(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OPS-3"""
    add("prod", "--server", ADDRESS, "--user", "ann", "--password-file", "secret", "--cluster", "c")
    add("test", "--server", "127.0.0.1:1")
    environment = {"ONCECAST_CONTEXTS": str(file)}
    assert file.stat().st_mode & 0o777 == 0o600
    assert applied(environment) == {
        "server": ADDRESS,
        "user": "ann",
        "password_file": str(Path("secret").absolute()),
        "cluster": "c",
    }
    assert applied(environment, context="test") == {"context": "test", "server": "127.0.0.1:1"}
    assert applied(environment | {"ONCECAST_CONTEXT": "test"}) == {"server": "127.0.0.1:1"}
    assert main(["context", "use", "test"]) == ExitStatus.OK
    assert applied(environment) == {"server": "127.0.0.1:1"}
    capsys.readouterr()
    assert main(["context", "list", "--json"]) == ExitStatus.OK
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["context"], each["used"]) for each in found] == [("prod", False), ("test", True)]


def test_login_of_a_context_is_never_sent_to_another_server(file: Path) -> None:
    """SEC-2"""
    add("prod", "--server", ADDRESS, "--token-file", "token")
    environment = {"ONCECAST_CONTEXTS": str(file)}
    assert applied(environment, server="10.0.0.2:1") == {"server": "10.0.0.2:1"}
    assert applied(environment | {"ONCECAST_SERVER": "10.0.0.2:1"}) == {}
    with pytest.raises(InvalidArgument, match="--server cannot be combined with --context"):
        applied(environment, server="10.0.0.2:1", context="prod")


def test_login_given_to_a_command_replaces_the_login_of_the_context(file: Path) -> None:
    """OPS-3"""
    add("prod", "--server", ADDRESS, "--token-file", "token")
    found = applied({"ONCECAST_CONTEXTS": str(file)}, user="bob", password_file="own")
    assert found == {"server": ADDRESS, "user": "bob", "password_file": "own"}


def test_removed_context_is_no_longer_used(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OPS-3"""
    add("prod", "--server", ADDRESS)
    assert main(["context", "remove", "prod"]) == ExitStatus.OK
    assert applied({"ONCECAST_CONTEXTS": str(file)}) == {}
    assert main(["context", "remove", "prod"]) != ExitStatus.OK
    assert "context 'prod' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"current": "a"}',
        b'{"current": 1, "contexts": {}}',
        b'{"current": "", "contexts": {"a": {"password": "x"}}}',
        b"\xff",
    ],
)
def test_damaged_file_gets_a_clear_error(file: Path, content: bytes) -> None:
    """OPS-3"""
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(InvalidArgument, match="is not a file of contexts"):
        read_contexts({"ONCECAST_CONTEXTS": str(file)})


@pytest.mark.parametrize("words", [["a b", "--server", "h:1"], ["", "--server", "h:1"]])
def test_context_needs_a_simple_name(words: list[str]) -> None:
    """OPS-3"""
    with pytest.raises(SystemExit):
        main(["context", "add", *words])


def test_context_needs_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    """OPS-3"""
    assert main(["context", "add", "prod"]) == ExitStatus.USAGE
    assert main(["context", "add", "prod", "--server", "nonsense"]) != ExitStatus.OK
    assert "set --server" in capsys.readouterr().err


def test_file_is_in_the_configuration_directory_of_the_user() -> None:
    """OPS-3"""
    assert contexts_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/oncecast/contexts.json")
    assert contexts_path({}) == Path.home() / ".config/oncecast/contexts.json"
