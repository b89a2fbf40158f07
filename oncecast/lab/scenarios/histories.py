"""Record the client sessions of a simulation, and check their history after the run."""

from __future__ import annotations

from typing import get_args

from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.history.check import check
from oncecast.history.recorder import Recorder
from oncecast.history.search import STEPS_MAX
from oncecast.history.session import SessionHistory
from oncecast.kernel.protocol import NodeId, Value
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step

REQUESTS = get_args(local.Request)


class Histories(Checker):
    """Records every node that has a client session.

    A run fails if the search cannot decide the history within `steps_max` steps.
    """

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self._steps_max = steps_max
        self._now = 0.0
        self.recorder = Recorder(lambda: self._now)
        self._sessions: dict[NodeId, SessionHistory | None] = {}

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start":
            self._sessions[step.node] = self._begun(sim, step.node)
        elif step.kind == "request" and isinstance(step.subject, REQUESTS):
            self._now = sim.now
            session = self._session(sim, step.node)
            if session is not None:
                session.asked(step.subject)

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        session = self._sessions.get(node)
        if session is not None:
            self._now = sim.now
            session.heard(event)

    def _session(self, sim: Simulation, node: NodeId) -> SessionHistory | None:
        if node not in self._sessions:  # the node was started before this checker was added
            self._sessions[node] = self._begun(sim, node)
        return self._sessions[node]

    def _begun(self, sim: Simulation, node: NodeId) -> SessionHistory | None:
        """Return the history of a new session. The node's earlier requests stay unanswered."""
        stack = sim.nodes[node].stack
        for protocol in stack.protocols if stack is not None else ():
            if isinstance(protocol, ClientSession):
                # Messages under one producer name keep their order when the client restarts.
                client = node.partition("#")[0]
                return SessionHistory(self.recorder, f"{client} as {protocol.producer}", protocol)
        return None

    def finish(self, sim: Simulation) -> None:
        for session in self._sessions.values():
            if session is not None:
                session.settle()
        verdict = check(self.recorder.history, steps_max=self._steps_max)
        if not verdict.ok:
            violation = Violation(str(verdict))
            violation.evidence = verdict.broken
            raise violation
