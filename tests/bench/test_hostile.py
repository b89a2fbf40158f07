"""Run small versions of the attacks on running nodes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bench.hostile.__main__ import PARTS, parse
from bench.hostile.barrage import ENDINGS, barrage, ending_of
from bench.hostile.corpus import Corpus, Recorder, recorded
from bench.hostile.extremes import Extremes, messages_of_clients, messages_of_peers
from bench.hostile.mutations import broken, damaged, mutated
from bench.hostile.storm import storm
from bench.hostile.targets import KINDS, running
from bench.hostile.toll import Toll
from oncecast.kernel.codec import ENCODER, Codec
from oncecast.network.framing import GREETING, MESSAGE, frame
from oncecast.replication.messages import Want
from oncecast.wire.commands import CreateTopic
from oncecast.wire.errors import Denied
from oncecast.wire.frames import Answer, Call, Look, View
from tools.check_docs import ROOT

CORPUS = Corpus(
    clients=tuple(map(ENCODER.encode, (Look(1), Call(2, CreateTopic("topic", 0))))),
    peers=(ENCODER.encode(Want(1, 2)),),
)


@pytest.mark.parametrize("kinds", [messages_of_clients(), messages_of_peers()])
def test_extreme_messages_have_the_right_types(kinds: tuple[type, ...]) -> None:
    rng, codec, extremes = Random(1), Codec(kinds), Extremes(kinds)
    found = {type(codec.decode(extremes.make(rng))) for _ in range(2000)}
    assert found == set(kinds)


def test_excluded_message_types_are_not_generated() -> None:
    rng, kinds = Random(1), messages_of_clients()
    extremes = Extremes(kinds, spare=(Look, CreateTopic))
    codec = Codec(kinds)
    for _ in range(500):
        message = codec.decode(extremes.make(rng))
        assert not isinstance(message, Look)
        assert not isinstance(getattr(message, "command", None), CreateTopic)


def test_mutations_differ_from_the_recorded_messages() -> None:
    rng = Random(1)
    bodies = [mutated(rng, CORPUS.clients) for _ in range(200)]
    assert sum(body not in CORPUS.clients for body in bodies) > 190
    hello = frame(GREETING, bytes(100))
    assert sum(damaged(rng, hello) != hello for _ in range(200)) > 190
    assert all(broken(rng, CORPUS.clients) for _ in range(200))


def test_recorded_messages_are_read_back_unchanged(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "file"))
    for message in CORPUS.clients:
        recorder.note(message)
    recorder.close()
    assert tuple(recorded(tmp_path / "file")) == CORPUS.clients
    CORPUS.save(tmp_path / "corpus")
    assert Corpus.load(tmp_path / "corpus") == CORPUS


def test_answers_are_distinguished_from_refusals() -> None:
    assert ending_of(MESSAGE, ENCODER.encode(View(1, (), False, "", ""))) == "answered"
    assert ending_of(MESSAGE, ENCODER.encode(Answer(1, Denied()))) == "refused"
    assert ending_of(GREETING, b"") == "refused"


def test_attacked_node_keeps_serving(tmp_path: Path) -> None:
    """SEC-3"""
    for outcome in barrage(1200, 1200, tmp_path, kinds=KINDS[:1], sessions=CORPUS):
        assert outcome.faults == []
        assert sum(outcome.endings[name] for name in ENDINGS) >= 600


def test_honest_client_is_measured_during_an_attack(tmp_path: Path) -> None:
    """SEC-3"""
    with running(KINDS[0], tmp_path) as target:
        found = storm(target, "small", 10, samples=20, rounds=1)
    assert len(found.quiet.times) == len(found.attacked.times) == 20
    assert all(time > 0 for time in found.quiet.times + found.attacked.times)
    assert found.attacked.hostile > 0
    assert found.attacked.locked_out == 0


def test_targets_missed_under_attack_are_listed() -> None:
    assert Toll([0.9], [0.8], [1.3]).faults == []
    names = [fault.split()[0] for fault in Toll([0.7], [0.7], [1.4]).faults]
    assert names == ["put", "get", "latency"]


def test_benchmark_page_names_every_part_of_the_attack() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert all(f"`{name}`" in page for name in PARTS)
    assert parse([]).only == list(PARTS)
