"""Test the commands for users, tokens and rules against a node in its own process."""

from __future__ import annotations

import getpass
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from tests.live.test_serve import Process

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    node = Process("--data", str(tmp_path / "data"))
    yield f"127.0.0.1:{node.port}"
    assert node.end(signal.SIGTERM) == 0
    assert node.process.stderr is not None
    node.process.stderr.close()


@pytest.fixture
def oncecast(
    server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Return a function that runs a command as a user, and returns status, stdout and stderr."""
    monkeypatch.setenv("ONCECAST_SERVER", server)

    def run(*words: str, user: str = "") -> tuple[int, str, str]:
        login = ["--user", user, "--password-file", str(tmp_path / user)] if user else []
        status = main([*words, *login, "--timeout", "10"])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def users(oncecast: Run, tmp_path: Path) -> None:
    """Add the administrator ann and the user bob."""
    for name in ("ann", "bob"):
        (tmp_path / name).write_text(f"secret of {name}\n")
    password = ("--new-password-file", str(tmp_path / "ann"))
    status, out, err = oncecast("user", "add", "ann", "--admin", *password)
    assert (status, out) == (ExitStatus.OK, "ann: administrator added\n")
    assert "this is the first user" in err
    password = ("--new-password-file", str(tmp_path / "bob"))
    assert oncecast("user", "add", "bob", *password, user="ann")[0] == ExitStatus.OK


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_rules_limit_the_requests_of_each_user(users: None, oncecast: Run) -> None:
    """SEC-2"""
    assert oncecast("topic", "list")[0] != ExitStatus.OK  # this client has no login
    assert oncecast("topic", "create", "news", user="bob")[0] == ExitStatus.NOT_ALLOWED
    assert oncecast("topic", "create", "news", "--keep-all", user="ann")[0] == ExitStatus.OK
    sub = ("sub", "news", "--subscription", "bob")
    assert oncecast(*sub, user="bob")[0] == ExitStatus.NOT_ALLOWED
    words = ("bob", "read", "ack", "--topic", "news*")
    assert oncecast("rule", "allow", *words, user="ann")[1] == ("bob read, ack on news*: allowed\n")
    assert "already allowed" in oncecast("rule", "allow", *words, user="ann")[1]
    assert oncecast(*sub, user="bob")[0] == ExitStatus.OK
    assert oncecast("put", "news", "hello", user="bob")[0] == ExitStatus.NOT_ALLOWED
    assert oncecast("put", "news", "hello", user="ann")[0] == ExitStatus.OK
    assert oncecast("get", "news", "--subscription", "bob", user="bob")[1] == "hello\n"
    assert oncecast("rule", "disallow", *words, user="ann")[0] == ExitStatus.OK
    assert oncecast("rule", "disallow", *words, user="ann")[0] == ExitStatus.NOT_FOUND
    assert oncecast(*sub, user="bob")[0] == ExitStatus.NOT_ALLOWED
    assert oncecast("user", "list", user="bob")[0] == ExitStatus.NOT_ALLOWED


def test_list_commands_show_users_and_rules(users: None, oncecast: Run) -> None:
    assert oncecast("user", "list", user="ann")[1] == "ann\nbob\n"
    assert oncecast("rule", "allow", "bob", "--use", "jobs*", user="ann")[0] == ExitStatus.OK
    assert lines(oncecast("rule", "list", "--json", user="ann")[1]) == [
        {"principal": "ann", "verbs": ["admin"], "topic": "*", "name": ""},
        {"principal": "bob", "verbs": [], "topic": "", "name": "jobs*"},
    ]
    head, row = oncecast("rule", "list", "--of", "bob", user="ann")[1].splitlines()
    assert head.split() == ["user", "verbs", "topics", "names"]
    assert row.split() == ["bob", "jobs*"]


def test_administrator_can_change_a_password_and_remove_a_user(
    users: None, oncecast: Run, tmp_path: Path
) -> None:
    """SEC-2"""
    file = tmp_path / "new"
    file.write_text("another secret")
    words = ("user", "password", "bob", "--new-password-file", str(file))
    assert oncecast(*words, user="ann")[0] == ExitStatus.OK
    assert oncecast("status", user="bob")[0] != ExitStatus.OK
    (tmp_path / "bob").write_text("another secret")
    assert oncecast("rule", "allow", "bob", "read", "--topic", "x", user="ann")[0] == ExitStatus.OK
    assert oncecast("topic", "list", user="bob")[0] == ExitStatus.OK
    assert oncecast("user", "remove", "bob", user="ann")[0] == ExitStatus.OK
    assert oncecast("topic", "list", user="bob")[0] != ExitStatus.OK
    assert oncecast("user", "remove", "bob", user="ann")[0] == ExitStatus.NOT_FOUND
    assert oncecast(*words, user="ann")[0] == ExitStatus.NOT_FOUND
    again = ("user", "add", "ann", "--new-password-file", str(file))
    assert oncecast(*again, user="ann")[0] == ExitStatus.NOT_ALLOWED
    assert (
        oncecast("user", "remove", "ann", user="ann")[0] != ExitStatus.OK
    )  # she is the last administrator


def test_token_logs_in_until_it_is_revoked(users: None, oncecast: Run, tmp_path: Path) -> None:
    """SEC-2"""
    file = tmp_path / "token"
    create = ("token", "create", "bob", "--days", "7", "--out", str(file))
    status, out, _ = oncecast(*create, user="ann")
    assert status == ExitStatus.OK
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() not in out
    assert oncecast(*create, user="ann")[0] == ExitStatus.USAGE  # the token file exists already
    assert oncecast("rule", "allow", "bob", "read", "--topic", "x", user="ann")[0] == ExitStatus.OK
    assert oncecast("topic", "list", "--token-file", str(file))[0] == ExitStatus.OK
    (known,) = lines(oncecast("token", "list", "--json", user="ann")[1])
    assert known["principal"] == "bob"
    assert known["expires"] > 0
    assert known["id"] in oncecast("token", "list", user="ann")[1]
    assert oncecast("token", "revoke", known["id"], user="ann")[0] == ExitStatus.OK
    assert oncecast("topic", "list", "--token-file", str(file))[0] != ExitStatus.OK
    assert oncecast("token", "revoke", known["id"], user="ann")[0] == ExitStatus.NOT_FOUND
    status, out, _ = oncecast("token", "create", "bob", user="ann")
    assert (status, out.count(".")) == (ExitStatus.OK, 1)
    assert "never" in oncecast("token", "list", user="ann")[1]


def test_user_add_prompts_for_a_password_at_a_terminal(
    oncecast: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-4"""
    status, _, err = oncecast("user", "add", "ann", "--admin")
    assert status == ExitStatus.USAGE
    assert "set --new-password-file" in err
    typed = iter(["tulip", "rose", "tulip", "tulip"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(typed))
    status, _, err = oncecast("user", "add", "ann", "--admin")
    assert (status, "the passwords differ" in err) == (ExitStatus.USAGE, True)
    assert oncecast("user", "add", "ann", "--admin")[0] == ExitStatus.OK


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["rule", "allow", "bob", "write", "--topic", "x"], "'write' is not a verb"),
        (["rule", "allow", "bob", "put", "--topic", "x", "--use", "y"], "not allowed with"),
    ],
)
def test_rule_with_an_unknown_verb_or_conflicting_options_is_a_usage_error(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == ExitStatus.USAGE
    assert complaint in capsys.readouterr().err
