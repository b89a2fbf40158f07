"""Run storms of the whole service with hostile clients: see `scenarios.intruders`."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.intruder import CODEC, Forger, Overheard
from oncecast.lab.scenarios.intruder_rules import is_foreign, principal_of
from oncecast.lab.scenarios.intruders import INTRUDERS
from oncecast.lab.scenarios.scenario import run
from oncecast.node.replica import CLIENTS
from oncecast.wire.frames import Call, ClientCommand
from tests.seeds import seeds

PER_TEST = 5


def storm(seed: int) -> None:
    outcome = run(INTRUDERS, seed)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"
    assert outcome.figures["refused"] or outcome.figures["served"]


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(10, 300, PER_TEST))
def test_intruders_do_not_affect_honest_clients(first: int) -> None:
    """SEC-2 SEC-3 SVC-2 SVC-3 SVC-10"""
    for seed in range(first, first + PER_TEST):
        storm(seed)


@pytest.mark.long
def test_storm_pauses_if_an_administrator_cannot_finish_its_work() -> None:
    """SEC-2"""
    storm(1001701)


@pytest.mark.long
def test_puts_sent_again_after_a_withdrawn_permission_are_stored_once() -> None:
    """SVC-2"""
    storm(5000084)


def test_intruder_sends_every_type_that_a_client_may_send() -> None:
    """SEC-2: new frames and commands are covered without a change to the scenario."""
    forger = Forger(Random(0), Overheard(), {"topic": ["mallory"]})
    made = [frame for frame in (forger.forge() for _ in range(3000)) if frame is not None]
    kinds = {type(frame) for frame in made}
    commands = {type(frame.command) for frame in made if isinstance(frame, Call)}
    assert kinds == set(CLIENTS) == set(CODEC.kinds)
    assert commands == set(get_args(ClientCommand))


def test_every_frame_counts_as_foreign_for_an_unknown_client() -> None:
    """SEC-2"""
    forger = Forger(Random(1), Overheard(), {"topic": ["mallory"], "source": ["mallory"]})
    frames = [frame for frame in (forger.forge() for _ in range(500)) if frame is not None]
    stranger, mallory = (
        principal_of(NodeId(f"client/{name}")) for name in ("stranger-1", "mallory")
    )
    assert all(is_foreign(stranger, frame) for frame in frames)
    assert not all(is_foreign(mallory, frame) for frame in frames)
    assert principal_of(NodeId("client/plain-reader#2")) == "honest"
