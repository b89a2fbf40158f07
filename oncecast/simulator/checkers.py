"""Checkers look for violations after every step of a simulation and at its end.

For each checker, the tests contain a mutant that the checker must catch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.protocol import NodeId, Value
from oncecast.simulator.step import Step
from oncecast.simulator.violation import Violation

if TYPE_CHECKING:
    from oncecast.simulator.simulated import Simulation

__all__ = ["Checker", "Violation"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Checker:
    def after(self, sim: Simulation, step: Step) -> None:
        """Check the state that this step can have changed."""

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        """Check an event for a node's application, whose records are already on disk."""

    def finish(self, sim: Simulation) -> None:
        """Check the final state of the run, when nothing is pending."""
