"""Run long storms with many slots, and check their order in bounded memory."""

from __future__ import annotations

import google_crc32c
import pytest

from oncecast.lab.scenarios import paxos_history
from oncecast.lab.scenarios.draw import draw_long
from oncecast.lab.scenarios.paxos import PAXOS_LONG, play_drawn
from oncecast.lab.scenarios.paxos_history import FORGOTTEN, GroupHistory
from oncecast.lab.scenarios.paxos_ledger import Order
from oncecast.lab.scenarios.scenario import run
from oncecast.replication.ballot import Ballot
from oncecast.replication.messages import Item
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from tests.replication.replicas import THREE, A

ONE, TWO = (0, 0), (0, 1)


@pytest.mark.long
def test_every_rule_holds_in_a_long_storm_while_the_checker_drops_old_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REP-1 REP-2"""
    monkeypatch.setattr(paxos_history, "KEPT_SLOTS", 1000)
    sim = Simulation(2)
    figures = play_drawn(sim, 3, draw_long(2, 3, 4000))
    sim.finish()
    assert figures["slots"] >= 4000
    assert figures["ballots"] > 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_every_rule_holds_for_a_hundred_thousand_slots(seed: int) -> None:
    """REP-1 REP-2 REP-5"""
    outcome = run(PAXOS_LONG, seed, 3 + 2 * (seed % 2))
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"
    assert outcome.figures["slots"] >= 100_000


def test_checker_drops_old_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """REP-1: the checker keeps their checksums."""
    monkeypatch.setattr(paxos_history, "KEPT_SLOTS", 10)
    monkeypatch.setattr(paxos_history, "FORGET_EVERY", 5)
    history, ballot = GroupHistory(THREE), Ballot(1, A)
    for slot in range(1, 31):
        history.propose(A, slot, ballot, Item(0, b"%d" % slot))
        history.accepted[slot] = {ballot: dict.fromkeys(THREE.members[:2])}
        history._choose()
    assert history.last == 30
    assert history.chosen[19].item is FORGOTTEN
    assert history.chosen[20].item == Item(0, b"20")
    chain = 0
    for slot in range(1, 31):
        chain = google_crc32c.extend(chain, b"%d 0 %d" % (slot, slot))
        assert history.chosen[slot].chain == chain
    assert history.is_chosen(19, Item(0, b"anything"))
    assert not history.is_chosen(20, Item(0, b"anything"))
    assert not history.is_chosen(31, Item(0, b"31"))
    assert list(history.proposed) == list(history.accepted) == list(range(20, 31))


def order_of_two() -> Order:
    """Return the order of two puts. The second is made after the first is acknowledged."""
    order = Order()
    order.made(ONE)
    order.applied(ONE, 5)
    assert order.acknowledged(ONE)
    order.made(TWO)
    return order


def test_order_checker_rejects_a_put_that_overtakes_an_acknowledged_put() -> None:
    """REP-1"""
    order_of_two().applied(TWO, 6)
    with pytest.raises(Violation, match="was acknowledged before this put was made"):
        order_of_two().applied(TWO, 4)


def test_order_checker_rejects_a_put_with_different_slots_on_two_replicas() -> None:
    """REP-1"""
    order = order_of_two()
    order.applied(TWO, 6)
    order.applied(TWO, 6)
    with pytest.raises(Violation, match="at slot 6 and at slot 7"):
        order.applied(TWO, 7)


def test_order_checker_rejects_an_acknowledged_put_that_no_replica_has_applied() -> None:
    """REP-1"""
    with pytest.raises(Violation, match="no replica has applied it"):
        order_of_two().acknowledged(TWO)


def test_order_checker_drops_a_settled_put() -> None:
    order = order_of_two()
    order.settled(ONE)
    order.applied(ONE, 9)
    assert not order.acknowledged(ONE)
