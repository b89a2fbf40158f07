"""The machine agrees with its model under stale, repeated and reordered commands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from oncecast.broker.machine import Machine
from tests.broker.machine_pair import WEIGHTS, Pair, Troublemaker, random_run


@pytest.mark.parametrize("seed", range(20))
def test_machine_and_model_agree_after_every_command(seed: int) -> None:
    """SVC-2 SVC-3 SVC-6 SVC-8 SVC-9"""
    random_run(seed, 300)


@pytest.mark.parametrize("seed", range(5))
def test_replay_with_and_without_snapshots_gives_the_same_state(seed: int) -> None:
    """SVC-10: a restored replica equals a replica that was never restored."""
    history = random_run(seed, 200).history
    whole, restored = Machine(), Machine()
    for slot, command in history:
        assert whole.apply(slot, command) == restored.apply(slot, command)
        restored = Machine.restore(list(restored.state()))
        assert restored.checksum() == whole.checksum()


class Trouble(RuleBasedStateMachine):
    """Has one rule per kind of command, and a rule that restores a snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    def do(self, kind: str, data: st.DataObject) -> None:
        trouble = Troublemaker(self.pair, lambda options: data.draw(st.sampled_from(options)))
        trouble.tokens = len(self.pair.history)
        self.pair.apply(getattr(trouble, kind)())

    @rule()
    def snapshot(self) -> None:
        self.pair.snapshot()


def _rule(kind: str) -> Any:
    def run(self: Trouble, data: st.DataObject) -> None:
        self.do(kind, data)

    run.__name__ = kind
    return rule(data=st.data())(run)


for _kind in WEIGHTS:
    setattr(Trouble, _kind, _rule(_kind))

TestTrouble = pytest.mark.long(Trouble.TestCase)
TestTrouble.settings = settings(max_examples=60, stateful_step_count=40)
