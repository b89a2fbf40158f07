"""WEB-3, CLI-3: play runs from the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest

from oncecast.cli.main import main
from oncecast.cli.playback.server import PageServer
from oncecast.errors import ExitStatus
from oncecast.history.file import write
from oncecast.overlay.recovery import Recovery
from tests.playback.test_histories import LINES, lost_put


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_replay_writes_one_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """WEB-3"""
    path = tmp_path / "run.html"
    words = ("sim", "replay", "broadcast", "--seed", "3", "--html", str(path))
    status, out, _ = run(capsys, *words)
    assert status == ExitStatus.OK
    assert out.startswith(f"{path}: ")
    assert out.endswith(" MB; open it in a browser\n")
    assert "<title>broadcast, seed 3 · oncecast playback</title>" in path.read_text()


def test_replay_of_a_violation_writes_the_file_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """WEB-3"""
    monkeypatch.setattr(Recovery, "start", lambda self: None)
    path = tmp_path / "run.html"
    words = ("sim", "replay", "broadcast", "--seed", "0", "--html", str(path))
    status, out, _ = run(capsys, *words)
    assert status == ExitStatus.FAILURE
    assert "never received" in out.splitlines()[0]
    assert path.exists()


def test_options_for_lines_cannot_select_what_the_page_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("sim", "replay", "broadcast", "--seed", "3", "--html", "x.html", "--last", "5")
    status, _, err = run(capsys, *words)
    assert status == ExitStatus.USAGE
    assert "do not combine them with --web or --html" in err


def test_unwritable_file_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "missing" / "run.html"
    words = ("sim", "replay", "broadcast", "--seed", "3", "--html", str(path))
    status, _, err = run(capsys, *words)
    assert status == ExitStatus.FAILURE
    assert "use a writable file" in err


def test_histories_and_traces_are_played(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """WEB-3"""
    history, trace, page = tmp_path / "h.jsonl", tmp_path / "t.jsonl", tmp_path / "p.html"
    with history.open("wb") as file:
        write(lost_put(), file)
    trace.write_bytes(LINES)
    status, out, _ = run(capsys, "playback", str(history), "--html", str(page))
    assert (status, out.split(":")[0]) == (ExitStatus.FAILURE, str(page))
    status, out, _ = run(capsys, "playback", str(trace), "--html", str(page))
    assert (status, ": 6 steps, " in out) == (ExitStatus.OK, True)
    status, _, err = run(capsys, "playback", str(trace), str(history))
    assert status == ExitStatus.FAILURE
    assert "play histories and traces separately" in err


def test_missing_empty_and_unknown_files_are_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    assert run(capsys, "playback", str(path))[0] == ExitStatus.NOT_FOUND
    path.write_text(json.dumps({"oncecast-history": 1}) + "\n")
    assert run(capsys, "playback", str(path))[0] == ExitStatus.EMPTY
    path.write_text("nonsense\n")
    status, _, err = run(capsys, "playback", str(path))
    assert status == ExitStatus.FAILURE
    assert "not a JSON object" in err


def test_server_answers_only_for_its_page_on_the_loopback_address() -> None:
    """WEB-3"""
    with PageServer("<p>é") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            assert asked(server, "GET", "/") == (200, "<p>é".encode())
            assert asked(server, "HEAD", "/") == (200, b"")
            assert asked(server, "GET", "/other")[0] == 404
            assert asked(server, "POST", "/")[0] == 501
            assert asked(server, "GET", "/", host="example.com")[0] == 421
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.long
def test_replay_serves_the_page_until_it_is_interrupted() -> None:
    """WEB-3"""
    words = ("sim", "replay", "broadcast", "--seed", "3", "--web")
    command = [sys.executable, "-m", "oncecast", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.fullmatch(
                r"playback at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C stops it\)\n", line
            )
            assert found is not None
            status, body = get(int(found[1]), "GET", "/")
            assert status == 200
            assert b"broadcast, seed 3" in body
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitStatus.INTERRUPTED


def asked(server: PageServer, verb: str, path: str, host: str = "") -> tuple[int, bytes]:
    return get(server.server_address[1], verb, path, host)


def get(port: int, verb: str, path: str, host: str = "") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(verb, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = (answer.status, answer.read())
    connection.close()
    return found
