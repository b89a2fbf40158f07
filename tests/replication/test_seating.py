"""REP-2 REP-4: a group under constant load takes a newcomer in, and none slows it down."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from oncecast.kernel.protocol import Effect, Later, NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.paxos_ledger import Put
from oncecast.replication.events import Change, Propose
from oncecast.replication.messages import (
    CONFIG,
    Accept,
    Accepted,
    Beat,
    Chosen,
    Flush,
    Heard,
    Item,
    Offer,
    Promise,
    Silence,
    Want,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, encode_config
from tests.replication.quiet import NODES, Quiet, Reader
from tests.replication.replicas import (
    THREE,
    A,
    B,
    C,
    D,
    E,
    ballot,
    command,
    hear,
    leading,
    sends,
    sync,
)
from tests.replication.test_seats import alive, decide, outsider, passes, taken_in

TWO = Config(1, THREE.members[:2], 3)
AHEAD = 4096  # slots that a replica accepts ahead of what it has applied


def busy(applied: int = 100_000) -> Paxos:
    """A leader of two, with a free seat, that has decided much."""
    group = leading(config=TWO)
    alive(group, B)
    group.state.progress.applied = applied
    return group


def propose(group: Paxos) -> list[NodeId]:
    """The nodes that hear of a proposal."""
    group.request(Propose(1, b"x"))
    group.timeout(Flush())
    return [to for to, message in sends(group.drain()) if isinstance(message, Accept)]


def reports(group: Paxos, node: NodeId, applied: int) -> None:
    """A newcomer answers the last Beat; meanwhile thousands of slots were decided."""
    stamp, _ = group.state.roster.beats[-1]
    group.state.progress.applied += AHEAD
    assert group.leader.term is not None
    hear(group, node, Heard(group.leader.term.ballot, stamp, 9, applied, 2.0))
    group.reconfiguration.look()


def heards(effects: list[Effect]) -> list[Heard]:
    return [message for _, message in sends(effects) if isinstance(message, Heard)]


def is_taken_in(group: Paxos) -> bool:
    assert group.leader.term is not None
    return bool(group.leader.term.queue or group.leader.term.in_flight)


def test_a_newcomer_that_has_all_it_was_told_of_gets_a_seat_however_much_is_decided_since() -> None:
    group = busy()
    hear(group, D, Offer(9, 0))
    assert group.state.roster.audience() == [B, D]
    alive(group, B)
    _, told = group.state.roster.beats[-1]
    reports(group, D, told - 10)
    assert is_taken_in(group)


def test_a_newcomer_that_lacks_much_of_what_it_was_told_of_gets_no_seat() -> None:
    group = busy()
    hear(group, D, Offer(9, 0))
    alive(group, B)
    _, told = group.state.roster.beats[-1]
    reports(group, D, told - AHEAD // 4)
    assert not is_taken_in(group)


def test_a_newcomer_hears_of_proposals_once_it_is_near() -> None:
    group = busy()
    hear(group, D, Offer(9, 0))
    assert propose(group) == [B]
    hear(group, D, Offer(9, group.applied - AHEAD // 4))
    assert propose(group) == [B, D]


def test_a_newcomer_hears_of_no_proposal_of_a_leader_that_is_alone() -> None:
    """After a crash that leader may use the same ballot for another value."""
    group = leading(config=Config(1, THREE.members[:1], 3))
    group.state.progress.applied = 100_000
    hear(group, D, Offer(9, group.applied - AHEAD // 4))
    assert (group.state.roster.newcomer, propose(group)) == (D, [])


def test_a_newcomer_that_falls_behind_hears_of_proposals_no_more() -> None:
    """It would drop them, and the leader would send them for nothing."""
    group = busy()
    hear(group, D, Offer(9, group.applied - AHEAD // 4))
    assert propose(group) == [B, D]
    alive(group, B)
    _, told = group.state.roster.beats[-1]
    reports(group, D, told - AHEAD)
    assert propose(group) == [B]


def test_a_newcomer_hears_of_proposals_no_more_when_there_is_no_seat_left() -> None:
    """Or a node that waits beside a group would cost it as much as another member, for ever."""
    group = leading()
    alive(group, B, C)
    passes(group, group.options.replace_after + 1, B)
    hear(group, D, Offer(9, 0))
    assert (group.state.roster.newcomer, propose(group)) == (D, [B, C, D])
    alive(group, B, C)
    hear(group, D, Offer(9, 0))
    assert (group.state.roster.newcomer, propose(group)) == (NodeId(""), [B, C])
    assert group.state.roster.audience() == [B, C]


def test_a_newcomer_that_never_catches_up_keeps_no_other_one_out() -> None:
    group = busy()
    for _ in range(int(4 * group.options.replace_after)):
        hear(group, D, Offer(9, 0))
        hear(group, E, Offer(9, 0))
        alive(group, B, now=0.5)
        if group.state.roster.newcomer == E:
            break
    assert group.state.roster.newcomer == E


def test_a_newcomer_follows_live_and_votes_for_the_leader_only() -> None:
    group = outsider()
    hear(group, A, Chosen(1, (command(b"1"),), 1))
    hear(group, A, Accept(ballot(1), 2, (command(b"2"),), 1, 0))
    effects = hear(group, A, Accept(ballot(1), 3, (command(b"3"),), 2, 0))
    assert sends(effects)[0] == (A, Accepted(ballot(1), 3, 3, group.state.membership.incarnation))
    assert [to for to, message in sends(effects) if isinstance(message, Accepted)] == [A]
    assert group.applied == 2


def test_a_beat_is_answered_with_what_was_applied_because_of_it() -> None:
    group = outsider()
    hear(group, A, Accept(ballot(1), 1, (command(b"1"),), 0, 0))
    sync(group)
    (heard,) = heards(hear(group, A, Beat(ballot(1), 1, 5.0)))
    assert heard.applied == 1


def test_a_beat_is_answered_with_what_is_on_disk() -> None:
    group = outsider()
    hear(group, A, Accept(ballot(1), 1, (command(b"1"),), 0, 0))
    sync(group)
    hear(group, A, Accept(ballot(1), 2, (command(b"2"),), 0, 0))
    (heard,) = heards(hear(group, A, Beat(ballot(1), 2, 5.0)))
    assert (group.applied, heard.applied) == (2, 1)


def test_a_new_member_waits_for_a_leader_even_if_none_has_spoken_since_it_was_seated() -> None:
    """It learned of its seat from another replica, after the leader was gone."""
    group = outsider()
    hear(group, A, Beat(ballot(1), 1, 1.0))
    group.timeout(Silence())
    group.drain()
    seat = Item(CONFIG, encode_config(THREE.added(Member(D, group.state.membership.incarnation))))
    effects = hear(group, B, Chosen(1, (seat,), 1))
    assert Silence() in [each.timer for each in effects if isinstance(each, Later)]


def test_nobody_goes_before_a_majority_of_the_others_has_what_was_decided() -> None:
    """D has a seat, but nothing yet: if B went now, A would be the only one to have it all."""
    group = leading(config=TWO)
    alive(group, B)
    hear(group, D, Offer(9, 0))
    assert decide(group)[-1] == TWO.added(Member(D, 9))
    assert group.leader.term is not None
    hear(group, D, Promise(group.leader.term.ballot, 9, 1, 0, (), ()))
    group.request(Change(remove=B))
    assert decide(group, B, D) == []
    alive(group, B)
    assert decide(group, B, D) == []
    taken_in(group, D)
    assert decide(group, B, D)[0] == TWO.added(Member(D, 9)).removed(B)


def test_a_newcomer_asks_for_more_until_it_has_all_that_its_source_has() -> None:
    """Not only up to what the leader told it a second ago; then it offers itself at once."""
    group = outsider()
    hear(group, A, Beat(ballot(1), 1, 1.0))
    effects = hear(group, B, Chosen(1, (command(b"1"),), 3))
    assert (B, Want(2, 3)) in sends(effects)
    effects = hear(group, B, Chosen(2, (command(b"2"), command(b"3")), 3))
    assert sends(effects)[-1] == (A, Offer(group.state.membership.incarnation, 3))


def test_what_a_replica_holds_in_memory_is_bounded_in_bytes_while_it_lacks_a_slot() -> None:
    """A slow newcomer reads it again from its log when it can apply it."""
    group = outsider(GroupOptions(window_bytes=1000))
    kept: dict[int, Item] = {}
    for slot in range(2, 50):
        kept[slot] = command(bytes([slot]) * 100)
        hear(group, A, Accept(ballot(1), slot, (kept[slot],), 0, 0))
        sync(group)
    assert group.state.values.held_bytes == sum(
        len(item.data) for item in group.state.values.items.values()
    )
    assert group.state.values.held_bytes <= 2 * group.options.window_bytes + 100


# -- under constant load --

SPARE = NodeId("spare")
QUICK = GroupOptions(
    heartbeat=0.4,
    suspicion=1.0,
    resend=0.06,
    replace_after=1.5,
    compare_every=0.0,
    accept_bytes=1024,
    piece_bytes=256,
)


class Busy(Quiet):
    """Puts come at a constant rate, and never cease."""

    def begin(self, rate: int) -> None:
        self.sim.ask(self.leader, Put(0, self.sequence, b"put"))
        self.sequence += 1
        self.sim.call(1 / rate, lambda: self.begin(rate))

    def build(self, me: NodeId, rng: Random) -> Stack:
        if me != SPARE:
            return super().build(me, rng)
        paxos = Paxos(me, rng, options=self.options, contacts=tuple(NODES))
        ledger = Reader(me, rng, paxos)
        paxos.attach(ledger)
        return Stack([paxos, ledger])

    def members(self) -> list[NodeId]:
        return sorted(self.paxos(self.leader).state.membership.config.nodes())


@pytest.mark.long
@pytest.mark.parametrize("window", [1, 64])
def test_a_newcomer_gets_the_seat_of_a_lost_member_under_constant_load(window: int) -> None:
    """It has to fetch a state first, because the log of the others is cut all the time."""
    quiet = Busy(options=replace(QUICK, window_slots=window))
    quiet.begin(rate=300)
    quiet.run(1.0)
    lost = next(node for node in NODES if node != quiet.leader)
    quiet.sim.crash(lost)
    quiet.sim.add(SPARE, quiet.build, durable=True)
    wanted = sorted([*NODES, SPARE])
    wanted.remove(lost)
    give_up = quiet.sim.now + 10.0
    while quiet.members() != wanted and quiet.sim.now < give_up:
        quiet.run(0.1)
    assert quiet.members() == wanted
    decided = quiet.paxos(quiet.leader).applied
    quiet.run(1.0)
    assert quiet.paxos(SPARE).applied > decided
