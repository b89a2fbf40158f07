"""Checkers look at a simulation after every step and once at its end, and raise what they find.

A checker that cannot fail is worthless: each one has a mutant in the tests that it must catch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId, Value
from oncecast.simulator.trace import Step

if TYPE_CHECKING:
    from oncecast.simulator.simulated import Simulation


class Violation(AssertionError):
    """A promise was broken: what, where, when."""


class Checker:
    def after(self, sim: Simulation, step: Step) -> None:
        """Called after every step; look only at what the step can have changed."""

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        """Called when the application of a node hears an event: what it depends on is on disk."""

    def finish(self, sim: Simulation) -> None:
        """Called when the run is over and everything outstanding should have happened."""
