"""Reintroduce bugs from earlier versions, and check that random storms find them.

Some are found from the client history alone, with all other checkers silenced. Rules about
permissions are found by storms with intruders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

import pytest
from msgspec.structs import replace

from oncecast.broker.accounts import Accounts
from oncecast.broker.administering import Administering
from oncecast.broker.answered import Answered
from oncecast.broker.clock import Clock
from oncecast.broker.events import Executed, Outcome
from oncecast.broker.gateway import Gateway
from oncecast.broker.governing import Governor
from oncecast.broker.guard import Guard
from oncecast.broker.machine import Machine
from oncecast.broker.moves import AnyCommand
from oncecast.broker.needs import COMMANDS, FRAMES, of_known
from oncecast.broker.publishing import Publishing
from oncecast.broker.scanning import Scanner
from oncecast.broker.service import NO_ASKER, Service
from oncecast.broker.subscription import Subscription
from oncecast.broker.timekeeping import Timekeeper
from oncecast.client.session.calls import Calls
from oncecast.client.session.producing import Flow
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Draw, Shape, draw
from oncecast.lab.scenarios.histories import Histories
from oncecast.lab.scenarios.paxos import play_drawn
from oncecast.replication.catchup import CatchUp
from oncecast.replication.messages import Chosen
from oncecast.replication.paxos import Paxos
from oncecast.replication.reconfiguration import Reconfiguration
from oncecast.replication.roster import Roster
from oncecast.replication.values import Values
from oncecast.security.access import Access
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.wire import commands as do
from oncecast.wire.frames import Scan
from tests.lab.scenarios.test_intruders import storm as intruders_storm
from tests.lab.scenarios.test_service import storm as service_storm
from tests.lab.scenarios.test_service_mutants import no_dedup
from tests.mutants import Detector, Mutant, Plant, assert_detected, both, replaced

pytestmark = pytest.mark.mutants

SEEDS = 100
Change = Callable[[Draw], Draw]


def play(sim: Simulation, change: Change) -> None:
    nodes = 3 + 2 * (sim.seed % 2)
    play_drawn(sim, nodes, change(draw(sim.seed, nodes)))
    sim.finish()


# -- storms: as drawn, except for conditions that a bug needs --


def storm(seed: int) -> None:
    play(Simulation(seed), lambda drawn: drawn)


def storm_under_load(seed: int) -> None:
    drawn = draw(seed, 3 + 2 * (seed % 2))
    if drawn.load.shape is Shape.FLOOD and not drawn.sessions:
        storm(seed)


def busy(drawn: Draw, *, deletes: bool) -> Draw:
    habits = replace(drawn.habits, roamers=3, rate=5.0, deletes=deletes)
    return replace(drawn, sessions=True, habits=habits, seconds=min(drawn.seconds, 6.0))


class Silenced(Checker):
    """Runs another checker, and suppresses its violations."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    def after(self, sim: Simulation, step: Step) -> None:
        self._quietly(lambda: self._checker.after(sim, step))

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        self._quietly(lambda: self._checker.heard(sim, node, event))

    def finish(self, sim: Simulation) -> None:
        self._quietly(lambda: self._checker.finish(sim))

    def _quietly(self, look: Callable[[], None]) -> None:
        # The checker's own history is wrong after a violation.
        with suppress(Violation, KeyError, IndexError):
            look()


class JudgedByHistory(Simulation):
    def check(self, *checkers: Checker) -> None:
        super().check(
            *(each if isinstance(each, Histories) else Silenced(each) for each in checkers)
        )


def history(seed: int) -> None:
    """Raise only violations that the client history shows."""
    try:
        play(JudgedByHistory(seed), partial(busy, deletes=seed % 4 < 2))
    except Violation as violation:
        if "not linearizable" in str(violation):
            raise


# -- mutants --


def seat_by_what_was_heard_last(patch: pytest.MonkeyPatch) -> None:
    """Inform a new member of chosen slots by Beats alone, and compare it with the current slot."""

    def caught_up(self: Roster, node: NodeId) -> bool:
        assert isinstance(self.io, Paxos)
        return self.io.applied - self.offers[node].applied <= self.options.window_slots // 4

    def on_chosen(self: CatchUp, sender: NodeId, message: Chosen) -> None:
        known = self.progress.known
        self._take(sender, Chosen(message.first, message.items, known))

    def followers(self: Roster) -> list[NodeId]:
        return self.membership.others()

    patch.setattr(Roster, "caught_up", caught_up)
    patch.setattr(Roster, "followers", followers)
    patch.setattr(CatchUp, "on_chosen", on_chosen)
    replaced(Reconfiguration, "look", "term.queue.appendleft(", "term.queue.append(")(patch)


read_without_a_lease = both(
    replaced(Gateway, "receive", "elif not self._leased:", "elif False:"),
    replaced(Scanner, "receive", "if not service.group.leads(self.now):", "if False:"),
    replaced(Governor, "receive", "elif not self.group.leads(self.now):", "elif False:"),
)


def answer_before_decided(patch: pytest.MonkeyPatch) -> None:
    """Answer a put when it is proposed. The answer is right if no open proposal is lost."""
    propose = Service._propose

    def early(self: Service, command: AnyCommand, asker: int = NO_ASKER) -> None:
        propose(self, command, asker)
        last, stamped = self._proposed.get(self._tokens, (NO_ASKER, command))
        if not isinstance(command, do.Put) or asker < 0 or last != asker:
            return
        machine = Machine.restore(self.machine.state())
        slot = machine.registry.last_slot
        *_, result = [
            machine.apply(slot + number, each)
            for number, (_, each) in enumerate(self._proposed.values(), 1)
        ]
        self._proposed[self._tokens] = (NO_ASKER, stamped)
        self.emit(Executed(asker, cast("Outcome", result)))

    patch.setattr(Service, "_propose", early)


OLD_BUGS: dict[str, tuple[Plant, Detector, tuple[int, ...]]] = {
    "a restart keeps the first of two values for a slot": (
        replaced(
            Values,
            "found",
            "self.let_go(slot)",
            "if slot in self.items and not self._may_hold_more():\n        return",
        ),
        storm,
        (152, 50),
    ),
    "a group under load admits no newcomer": (
        seat_by_what_was_heard_last,
        storm_under_load,
        (112,),
    ),
    "a deposed leader answers reads": (read_without_a_lease, service_storm, (83, 87)),
    "one wall clock far ahead empties a topic": (
        both(
            replaced(Clock, "pass_time", "if not step or", "if True or"),
            replaced(Timekeeper, "stamp", "self._agreed(wall, expected)", "wall"),
        ),
        storm,
        (72,),
    ),
}

LATE = {  # bugs that only late copies of a dead client's messages show
    "late publish publishes parts that were staged after a drop": (
        replaced(Publishing, "drop", "if command.renew:", "if False:"),
        (1399, 1941),
    ),
}

HISTORY: dict[str, tuple[Plant, tuple[int, ...]]] = {
    "a put is answered before it is decided": (answer_before_decided, (4,)),
    "a repeated put is stored again": (no_dedup, (1,)),
    "an acknowledgement is lost": (
        replaced(Subscription, "acknowledge", "self.cursor = max(self.cursor, upto)", "pass"),
        (4,),
    ),
    "a seek does not move the cursor": (
        replaced(Subscription, "seek", "self.cursor = cursor", "pass"),
        (6,),
    ),
    "a deleted topic keeps its messages": (
        replaced(Administering, "delete", "self._registry.remove(topic)", "pass"),
        (4,),
    ),
}


def without_need(*kinds: type) -> Plant:
    """Return a mutant that admits these requests from every known principal."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for kind in kinds:
            patch.setitem(FRAMES if kind in FRAMES else COMMANDS, kind, of_known)

    return plant


GUARD = replaced(Guard, "judge", "if verdict is Verdict.REDIRECT:", "if True:")
INTRUSIONS: dict[str, tuple[Plant, tuple[int, ...]]] = {
    "the guard allows every request": (GUARD, ()),
    "a detach needs no permission": (without_need(do.Detach), ()),
    "a scan needs no permission": (without_need(Scan), ()),
    "a fetch acknowledges without permission": (
        replaced(Gateway, "_fetch", "if not self._may(client, ACK, fetch.topic):", "if False:"),
        (6,),
    ),
    "parts are published without put permission on their topics": (
        replaced(Guard, "_may_publish", "return all(", "return True or all("),
        (),
    ),
    "a publish without a topic needs no put permission": (
        replaced(Access, "_has", "return bool(topics[PUT])", "return True"),
        (),
    ),
    "a list shows all topics": (replaced(Gateway, "_names", "if access.open:", "if True:"), ()),
    "names of other principals are usable": (
        replaced(Access, "_decide", "return not name or", "return True or"),
        (),
    ),
    "long names reach the log": (replaced(Gateway, "_refusal", " or size_fault(command)", ""), ()),
    "calls in flight are not limited": (
        replaced(Accounts, "refusal", "if account.calls >= budget.calls:", "if False:"),
        (),
    ),
    "a token counts for all topics": (
        replaced(
            Answered,
            "get",
            "self._answers.get((topic, token))",
            "dict(self.items()).get(token)",
        ),
        (26,),
    ),
    "a put counts as not stored if its copy is denied": (
        replaced(Flow, "_drop_refused", "if first.sends <= 1:", "if True:"),
        (27, 50),
    ),
    "a call counts as not executed if its copy is denied": (
        replaced(Calls, "answered", "and waiting.may_have_run", "and False"),
        (179, 262, 289),
    ),
}

MUTANTS = [
    Mutant(rule, plant, detector, SEEDS, known)
    for rule, (plant, detector, known) in OLD_BUGS.items()
] + [
    Mutant(f"history: {rule}", plant, history, SEEDS, known)
    for rule, (plant, known) in HISTORY.items()
]
MUTANTS += [
    Mutant(f"service: {rule}", plant, service_storm, SEEDS, known)
    for rule, (plant, known) in LATE.items()
]
MUTANTS += [
    Mutant(f"intruders: {rule}", plant, intruders_storm, SEEDS, known)
    for rule, (plant, known) in INTRUSIONS.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_storms_find_a_reintroduced_bug(mutant: Mutant) -> None:
    """REP-1 REP-5 SVC-9 SVC-10 SEC-2 SEC-3"""
    assert_detected(mutant)
