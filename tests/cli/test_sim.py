"""NET-1, CLI-3: simulations from the command line."""

from __future__ import annotations

import json
import os

import pytest

from oncecast.cli.main import build_parser, main
from oncecast.errors import ExitStatus
from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.catalogue import SCENARIOS
from oncecast.overlay.recovery import Recovery


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_sim_list_prints_all_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "sim", "list")
    assert status == ExitStatus.OK
    assert [line.split()[0] for line in out.splitlines()] == list(SCENARIOS)
    # All lines have the same columns.
    assert len({line.index(" nodes ") for line in out.splitlines()}) == 1


def test_run_prints_one_json_line_per_seed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "sim", "run", "broadcast", "--seeds", "3..5", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == ExitStatus.OK
    assert [line["seed"] for line in lines] == [3, 4, 5]
    assert all(line["ok"] and len(line["trace"]) == 32 for line in lines)
    assert lines[0]["replay"] == "oncecast sim replay broadcast --nodes 6 --seed 3"


def test_single_seed_is_reported_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "sim", "run", "broadcast", "--seeds", "3..3")
    assert out.startswith("broadcast: 1 seed, ")
    _, out, _ = run(capsys, "sim", "run", "broadcast", "--seeds", "3..4")
    assert out.startswith("broadcast: 2 seeds, ")


@pytest.mark.long
def test_several_processes_give_the_same_traces(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sim", "run", "shuffle", "--nodes", "9", "--seeds", "0..3", "--json")
    alone = run(capsys, *words, "--jobs", "1")[1].splitlines()
    shared = run(capsys, *words, "--jobs", "2")[1].splitlines()
    traces = [
        [(each["seed"], each["trace"]) for each in map(json.loads, lines)]
        for lines in (alone, shared)
    ]
    assert traces[0] == traces[1]


def test_seeds_run_in_one_process_per_core_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert build_parser().parse_args(["sim", "run", "broadcast"]).jobs == 7


def test_violation_prints_its_seed_and_replay_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recovery, "start", lambda self: None)
    status, out, _ = run(capsys, "sim", "run", "broadcast", "--seeds", "0..4", "--jobs", "1")
    assert status == ExitStatus.FAILURE
    assert "never received" in out
    command = next(line.split(": ", 1)[1] for line in out.splitlines() if "replay: " in line)
    assert command.startswith("oncecast sim replay broadcast --nodes 6 --seed ")

    status, out, _ = run(capsys, *command.split()[1:], "--last", "3")
    assert status == ExitStatus.FAILURE
    assert "never received" in out


def test_replay_shows_the_steps_of_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sim", "replay", "broadcast", "--seed", "3", "--node", "n2", "--since", "5")
    status, out, _ = run(capsys, *words, "--json")
    steps = [json.loads(line) for line in out.splitlines()]
    assert status == ExitStatus.OK
    assert {step["node"] for step in steps} == {NodeId("n2")}
    assert min(step["time"] for step in steps) >= 5.0
    assert any("send" in effect for step in steps for effect in step["effects"])


def test_replay_of_the_last_steps_matches_the_end_of_a_full_replay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("sim", "replay", "broadcast", "--seed", "3", "--json")
    whole = run(capsys, *words)[1].splitlines()
    assert run(capsys, *words, "--last", "10")[1].splitlines() == whole[-10:]


@pytest.mark.long
def test_bench_measures_the_requested_size(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "sim", "bench", "--nodes", "50", "--repeat", "1", "--json")
    figures = json.loads(out)
    assert status == ExitStatus.OK
    assert figures["nodes"] == 50
    assert figures["events_per_node_second"] == pytest.approx(6.0, rel=0.01)


def test_error_for_an_unknown_scenario_lists_the_known_scenarios(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for verb in (("run",), ("replay", "--seed", "1")):
        status, _, err = run(capsys, "sim", verb[0], "nonsense", *verb[1:])
        assert status == ExitStatus.NOT_FOUND
        assert ", ".join(sorted(SCENARIOS)) in err


def test_unknown_node_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sim", "replay", "broadcast", "--seed", "3", "--node", "zz")
    status, _, err = run(capsys, *words)
    assert status == ExitStatus.NOT_FOUND
    assert "n0" in err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "broadcast", "--seeds", "5..1"),
        ("run", "broadcast", "--seeds", f"0..{10**30}"),
        ("run", "broadcast", "--seeds", "some"),
        ("run", "broadcast", "--nodes", "0"),
        ("run", "shuffle", "--nodes", "1"),
        ("run", "broadcast", "--jobs", "-1"),
        ("replay", "broadcast"),
        ("bench", "--nodes", "many"),
        ("bench", "--nodes", "1000,1"),
    ],
    ids=" ".join,
)
def test_invalid_sim_argument_is_a_usage_error(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(("sim", *words))
    assert exit_.value.code == ExitStatus.USAGE
