"""Test the messages and decisions of a move in the mover and the exporter. REP-6"""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.clock import Dispute
from oncecast.broker.holdings import PeerGroup
from oncecast.dht.identifiers import after, key_of
from oncecast.kernel.protocol import NodeId, Value
from oncecast.ring.events import GroupFacts, KeyOwner, WhereIs, WhoseKey
from oncecast.ring.moves import (
    Abandoned,
    Adopted,
    Export,
    Exported,
    ExportRefused,
    ImportAll,
    NotLeader,
    Pull,
    Pulled,
    Released,
    StillWanted,
    Survey,
    Surveyed,
    TopicEnds,
)
from oncecast.wire.commands import (
    Ack,
    Acks,
    Attach,
    DeleteTopic,
    FromEarliest,
    OpenProducer,
    Subscribe,
    Unsubscribe,
)
from oncecast.wire.results import Attached, MoveStep, Unsubscribed
from tests.ring.pair import GIVER, LOOKUP, MESSAGES, MINE, TAKER, THEIRS, Group, Replica, World

ALL = list(range(MESSAGES))
AT, LOW = key_of(TAKER), key_of(GIVER)
OLD, ASKER = NodeId(f"p1/{GIVER}"), NodeId(f"p1/{TAKER}")


def begin() -> World:
    world = World()
    world.found(TAKER)
    return world


def until(world: World, kind: type[Value]) -> None:
    """Run until a message of this kind is in flight."""
    before = len(world.sent)
    world.run(lambda: any(isinstance(each[2], kind) for each in world.sent[before:]))


def kinds(world: World) -> list[str]:
    """Return the kinds of all messages between the groups."""
    return [type(message).__name__ for _, to, message in world.sent if to != LOOKUP]


def decided(group: Group) -> list[str]:
    """Return the move commands that a group decided."""
    steps = ("Found", "Claim", "Adopt", "Abandon", "Finish", "Freeze", "Thaw", "Release", "Retire")
    found = [step for value in group.log for step in steps if step.encode() in value[:9]]
    return found[found.index("Found") :]


def ask(replica: Replica, world: World, message: Value, sender: NodeId = ASKER) -> list[Value]:
    """Return the immediate answers to a message from a node that the directory knows."""
    replica.mover._neighbors.located(GroupFacts(TAKER, None, ASKER, (ASKER,), 1))
    before = len(world.sent)
    world.hear(replica, sender, message)
    return [each for _, _, each in world.sent[before:]]


# -- a whole move --


def test_move_goes_through_survey_copy_export_adoption_and_release() -> None:
    """REP-6: the move needs exactly these messages."""
    world = begin()
    world.groups[GIVER].leader.mover.pull_bytes = 1 << 20
    world.run(lambda: world.settled)
    talk = [
        *("Survey", "Surveyed", "Pull", "Pulled"),
        *("Survey", "Surveyed"),  # a second round, because the first one copied many messages
        *("Export", "Exported", "Adopted", "Released"),
    ]
    assert kinds(world) == talk
    assert decided(world.groups[TAKER]) == ["Found", "Claim", "Adopt", "Finish"]
    assert decided(world.groups[GIVER]) == ["Found", "Freeze", "Release"]
    assert world.kept(MINE) == world.kept(THEIRS) == ALL


def test_group_without_an_arc_claims_one_only_if_it_has_all_replicas() -> None:
    """REP-5: only a group with all its replicas takes over topics."""
    world = World()
    importer = world.found(TAKER)
    importer.leader.mover._replicas = 2
    world.run(lambda: importer.leader.mover.holdings is not None)
    until(world, WhoseKey)
    assert world.sent[-1] == (importer.leader.me, LOOKUP, WhoseKey(AT))
    owner = KeyOwner(AT, world.known_facts[GIVER], 3)
    world.hear(importer.leader, LOOKUP, owner)
    assert importer.proposed == []
    importer.new_leader()
    importer.leader.mover._replicas = 2
    world.hear(importer.leader, LOOKUP, KeyOwner(after(AT), world.known_facts[GIVER], 3))
    assert importer.proposed == []
    world.hear(importer.leader, LOOKUP, owner)
    assert len(importer.proposed) == 1
    world.hear(importer.leader, LOOKUP, owner)
    assert len(importer.proposed) == 1


def test_group_in_a_small_ring_needs_fewer_replicas_to_claim_an_arc() -> None:
    """REP-5"""
    world = World()
    importer = world.found(TAKER)
    importer.leader.mover._replicas = 3
    world.run(lambda: importer.leader.mover.holdings is not None)
    world.hear(importer.leader, LOOKUP, KeyOwner(AT, world.known_facts[GIVER], 1))
    assert len(importer.proposed) == 1


# -- the exporter answers from decided state --


def test_repeated_requests_get_the_same_answers() -> None:
    """REP-6"""
    world = begin()
    until(world, Adopted)
    exporter = world.groups[GIVER].leader
    move = world.groups[TAKER].holdings.claim
    assert move is not None
    give = Export(move.move, AT, PeerGroup(TAKER, world.groups[TAKER].nodes))
    first, second = ask(exporter, world, give), ask(exporter, world, give)
    assert first == second
    assert isinstance(first[0], Exported)
    assert ask(exporter, world, Survey("m", AT)) == ask(exporter, world, Survey("m", AT))
    world.run(lambda: world.settled)
    assert ask(exporter, world, Adopted(move.move)) == [Released(move.move)]
    assert decided(world.groups[GIVER]).count("Release") == 1


def test_exporter_refuses_a_part_it_does_not_own() -> None:
    """REP-6: the importer asks the ring again for the owner."""
    world = begin()
    world.run(lambda: world.settled)
    exporter = world.groups[GIVER].leader
    assert ask(exporter, world, Survey("m", AT)) == [ExportRefused("m")]
    mine = PeerGroup(TAKER, (ASKER,))
    assert ask(exporter, world, Export("m", AT, mine)) == [ExportRefused("m")]
    assert ask(exporter, world, Export("m", LOW, mine)) == [ExportRefused("m")]


def test_exporter_refuses_a_second_importer() -> None:
    """REP-6"""
    world = begin()
    until(world, Adopted)
    exporter = world.groups[GIVER].leader
    other = Export("m", AT, PeerGroup(TAKER, (ASKER,)))
    assert ask(exporter, world, other) == [ExportRefused("m")]


# -- nodes that do not belong to the move (SEC-1) --

GHOST = NodeId(f"ghost:1/{TAKER}")


@pytest.mark.parametrize("ghost", [GHOST, NodeId("ghost:1/g-x"), NodeId("ghost:1"), OLD])
def test_forged_messages_cannot_take_topics_from_a_group(ghost: NodeId) -> None:
    """SEC-1: two forged messages once removed all topics of a group."""
    world = World()
    world.found(TAKER)
    world.run(lambda: TAKER in world.known_facts)
    exporter = world.groups[GIVER]
    group = ghost.partition("/")[2]
    for until in (AT, LOW, key_of(group)):
        for message in (
            Survey("m", until),
            Pull("m", MINE, 1, 0),
            Export("m", until, PeerGroup(group, (ghost,))),
            Adopted("m"),
            Abandoned("m"),
            ImportAll(PeerGroup(group, (ghost,))),
        ):
            world.hear(exporter.leader, ghost, message)
    for _ in range(20):
        world.step()
    assert not {"Freeze", "Release", "Claim"} & {*decided(exporter)}
    to_ghost = [each for _, to, each in world.sent if to == ghost]
    assert all(isinstance(each, ExportRefused | Released) for each in to_ghost)
    world.run(lambda: world.settled)
    assert (world.kept(MINE), world.kept(THEIRS)) == (ALL, ALL)


@pytest.mark.parametrize("kind", [Adopted, Abandoned])
def test_uninvolved_group_cannot_end_a_move(kind: type[Adopted | Abandoned]) -> None:
    """SEC-1: otherwise the part could be dropped before its adoption, or served by two groups."""
    world = begin()
    until(world, Exported)
    exporter = world.groups[GIVER]
    frozen = exporter.holdings.frozen
    assert frozen is not None
    other = NodeId("p1/g-x")
    exporter.leader.mover._neighbors.located(GroupFacts("g-x", None, other, (other,), 1))
    world.hear(exporter.leader, other, kind(frozen.move))
    world.hear(exporter.leader, GHOST, kind(frozen.move))
    assert exporter.proposed == []
    assert exporter.holdings.frozen == frozen
    world.run(lambda: world.settled)
    assert world.kept(MINE) == ALL


def test_unsolicited_answers_from_nodes_are_ignored() -> None:
    """SEC-1"""
    world = begin()
    until(world, Survey)
    importer = world.groups[TAKER]
    claim = importer.holdings.claim
    assert claim is not None
    move = claim.move
    for forged in (
        Surveyed(move, "", (TopicEnds("forged", 1, 0, 9),), False),
        ExportRefused(move),
        Exported(move, LOW, AT, 0, 0, 0, b""),
        Released(move),
        NotLeader(move, GHOST, (GHOST,)),
        KeyOwner(AT, GroupFacts("g-x", AT, GHOST, (GHOST,), 9), 1),
        GroupFacts(GIVER, None, NodeId(""), (), 1 << 62, retired=True),
    ):
        assert ask(importer.leader, world, forged, GHOST) == []
    assert importer.proposed == []
    world.run(lambda: world.settled)
    assert world.kept(MINE) == ALL
    assert not any(to == GHOST for _, to, _ in world.sent)


def test_request_waits_until_the_directory_knows_its_sender() -> None:
    world = World()
    exporter = world.groups[GIVER].leader
    world.hear(exporter, ASKER, Survey("m", AT))
    assert world.sent[-1] == (exporter.me, LOOKUP, WhereIs(TAKER))
    facts = GroupFacts(TAKER, None, ASKER, (ASKER,), 1)
    world.hear(exporter, LOOKUP, facts)
    answers = [each for each in world.sent if isinstance(each[2], Surveyed)]
    assert [each[:2] for each in answers] == [(exporter.me, ASKER)]
    world.hear(exporter, LOOKUP, facts)
    assert [
        each for each in world.sent if isinstance(each[2], Surveyed)
    ] == answers  # no second answer


def test_part_with_too_much_metadata_is_thawed(monkeypatch: pytest.MonkeyPatch) -> None:
    """REP-6: the topics, producers and subscriptions do not fit into one message."""
    world = begin()
    until(world, Export)
    monkeypatch.setattr("oncecast.ring.exporter.ROWS_BYTES_MAX", 10)
    exporter = world.groups[GIVER]
    until(world, ExportRefused)
    world.run(lambda: exporter.holdings.frozen is None)
    assert decided(exporter)[-2:] == ["Freeze", "Thaw"]
    assert not any(isinstance(each[2], Exported) for each in world.sent)
    assert world.kept(MINE) == ALL
    monkeypatch.undo()
    world.run(lambda: world.settled)
    assert world.owners(MINE) == [TAKER]


def test_part_has_one_owner_if_its_metadata_outgrows_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REP-6: new rules make the metadata too large after the exporter has sent it once."""
    world = begin()
    until(world, Exported)
    exporter, importer = world.groups[GIVER], world.groups[TAKER]
    first = [each for each in world.in_flight if isinstance(each[2], Exported)]
    export = next(each for each in world.sent if isinstance(each[2], Export))
    world.in_flight.clear()
    with monkeypatch.context() as patch:
        patch.setattr("oncecast.ring.exporter.ROWS_BYTES_MAX", 10)
        world.hear(exporter.leader, export[0], export[2])  # a copy of the request arrives late
        refused = [each for each in world.in_flight if isinstance(each[2], ExportRefused)]
        assert refused
        world.in_flight.clear()
        world.in_flight.extend([*first, *refused])
        while exporter.proposed:
            exporter.decide()
        world.run(lambda: "Adopt" in decided(importer))
    world.run(lambda: world.settled)
    assert world.owners(MINE) == [TAKER]
    assert world.kept(MINE) == ALL


def test_survey_lists_topics_in_name_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncecast.ring.exporter.TOPICS_MAX", 1)
    world = World()
    exporter = world.groups[GIVER].leader
    world.groups[GIVER].holdings.retired = True
    (one,) = ask(exporter, world, Survey("m", LOW))
    (two,) = ask(exporter, world, Survey("m", LOW, MINE))
    assert one == Surveyed("m", "", (TopicEnds(MINE, 1, 0, MESSAGES),), True)
    assert two == Surveyed("m", MINE, (TopicEnds(THEIRS, 2, 0, MESSAGES),), False)


def test_pull_is_bounded_and_empty_for_another_topic_id() -> None:
    world = World()
    exporter = world.groups[GIVER].leader
    (pulled,) = ask(exporter, world, Pull("m", MINE, 1, 3))
    assert isinstance(pulled, Pulled)
    assert [each.offset for each in pulled.batches] == [3, 4, 5, 6]
    assert ask(exporter, world, Pull("m", MINE, 9, 3)) == [Pulled("m", MINE, 3, ())]
    assert ask(exporter, world, Pull("m", MINE, 1, MESSAGES)) == [Pulled("m", MINE, MESSAGES, ())]
    assert ask(exporter, world, Pull("m", "none", 1, 0)) == [Pulled("m", "none", 0, ())]


def test_messages_acknowledged_during_the_copy_are_not_pulled() -> None:
    """REP-6: fast readers must not delay the move."""
    world = begin()
    until(world, Pull)
    exporter = world.groups[GIVER]
    attached = exporter.result(Attach(MINE, "s", "inc-1"))
    assert isinstance(attached, Attached)
    exporter.apply(Acks((Ack(MINE, "s", attached.epoch, MESSAGES),), 0))
    assert ask(exporter.leader, world, Pull("m", MINE, 1, 3)) == [Pulled("m", MINE, 3, ())]
    world.run(lambda: world.settled)
    assert world.owners(MINE) == [TAKER]


def test_pull_stops_before_an_unreadable_batch() -> None:
    """SVC-10: the batch is being fetched from another replica."""
    world = World()
    group = world.groups[GIVER]
    live_slots = [each.slot for each in topic_of(group.leader).index.entries(0)]
    group.missing.add(live_slots[5])
    (pulled,) = ask(group.leader, world, Pull("m", MINE, 1, 3))
    assert isinstance(pulled, Pulled)
    assert [each.offset for each in pulled.batches] == [3, 4]
    assert ask(group.leader, world, Pull("m", MINE, 1, 5)) == []


def topic_of(replica: Replica) -> Any:
    return replica.service.machine.registry.topics[MINE]


# -- leaders --


def test_follower_names_the_leader() -> None:
    world = World()
    group = world.groups[GIVER]
    group.new_leader()
    old, new = group.replicas
    assert ask(old, world, Survey("m", AT)) == [NotLeader("m", new.me, group.nodes)]
    group.unsure = True
    assert ask(new, world, Survey("m", AT)) == [NotLeader("m", new.me, group.nodes)]
    assert ask(new, world, ImportAll(PeerGroup("x", (OLD,)))) == []


def test_importer_follows_at_most_three_redirects() -> None:
    world = begin()
    until(world, Survey)
    importer = world.groups[TAKER].leader
    survey = world.sent[-1][2]
    assert isinstance(survey, Survey)
    two = [NodeId(f"x{number}/{GIVER}") for number in (1, 2)]
    answers = [
        ask(importer, world, NotLeader(survey.move, two[number % 2], tuple(two)), OLD)
        for number in range(9)
    ]
    assert answers == [[survey]] * 3 + [[]] * 6


def test_unanswered_importer_asks_the_next_replica_and_the_directory() -> None:
    """REP-6: all replicas that the importer knows may have been replaced."""
    world = begin()
    until(world, Survey)
    world.in_flight.clear()
    exporter = world.groups[GIVER]
    exporter.new_leader()
    gone, new = exporter.replicas
    exporter.replicas, exporter.nodes = [new], (new.me,)
    world.wakes = [each for each in world.wakes if each[0] is not gone]
    before = len(world.sent)
    world.report()
    world.run(lambda: world.settled)
    said = [(to, message) for _, to, message in world.sent[before:]]
    assert (LOOKUP, WhereIs(GIVER)) in said
    assert world.kept(MINE) == ALL
    assert world.owners(MINE) == [TAKER]


def test_move_ends_when_the_exporter_disappears() -> None:
    """REP-6: the exporter has released everything. A claim that is not adopted is abandoned."""
    vanished = GroupFacts(GIVER, None, NodeId(""), (), 1 << 62, retired=True)
    for kind, end in ((Survey, "Abandon"), (Adopted, "Finish")):
        world = begin()
        until(world, kind)
        world.hear(world.groups[TAKER].leader, LOOKUP, vanished)
        world.groups[TAKER].decide()
        assert decided(world.groups[TAKER])[-1] == end
        assert world.groups[TAKER].holdings.claim is None


# -- abandoned moves --


def test_refused_export_abandons_the_claim() -> None:
    """REP-6: the exporter is notified, because it may have frozen the part in the meantime."""
    world = begin()
    until(world, Export)
    give = world.sent[-1][2]
    assert isinstance(give, Export)
    importer = world.groups[TAKER]
    world.in_flight.clear()
    world.hear(importer.leader, OLD, ExportRefused(give.move))
    before = len(world.sent)
    importer.decide()
    assert decided(importer)[-1] == "Abandon"
    assert world.sent[before:] == [(importer.leader.me, OLD, Abandoned(give.move))]
    assert not importer.holdings.incoming
    world.run(lambda: world.settled)
    assert world.kept(MINE) == ALL


def test_abandoned_claim_thaws_the_part() -> None:
    """REP-6: the exporter asks, and the importer's leader answers."""
    world = begin()
    until(world, Exported)
    importer, exporter = world.groups[TAKER], world.groups[GIVER]
    claim = importer.holdings.claim
    assert claim is not None
    world.in_flight.clear()
    importer.apply(do.Abandon(claim.move))
    importer.new_leader()
    world.run(lambda: "Thaw" in decided(exporter))
    assert any(isinstance(each[2], StillWanted) for each in world.sent)
    world.run(lambda: world.settled)
    assert world.owners(MINE) == [TAKER]
    assert world.kept(MINE) == ALL


def test_waiting_exporter_is_answered_only_after_a_decision() -> None:
    """REP-6: the exporter must wait while the importer may still adopt the part."""
    world = begin()
    until(world, Exported)
    importer = world.groups[TAKER]
    claim = importer.holdings.claim
    assert claim is not None
    assert ask(importer.leader, world, StillWanted(claim.move)) == []
    assert ask(importer.leader, world, StillWanted("another")) == [Abandoned("another")]
    importer.unsure = True
    assert ask(importer.leader, world, StillWanted("another")) == [
        NotLeader("another", importer.leader.me, importer.nodes)
    ]
    importer.unsure = False
    until(world, Adopted)
    assert ask(importer.leader, world, StillWanted(claim.move)) == [Adopted(claim.move)]


def test_part_frozen_for_another_move_is_not_thawed() -> None:
    """REP-6"""
    world = begin()
    until(world, Exported)
    exporter = world.groups[GIVER]
    world.hear(exporter.leader, OLD, Abandoned("another"))
    assert exporter.proposed == []


def test_copies_with_a_gap_are_discarded_and_copied_again() -> None:
    """REP-6: a proposal may be lost while a later one is decided."""
    world = begin()
    until(world, Pulled)
    pulled = world.sent[-1][2]
    assert isinstance(pulled, Pulled)
    importer = world.groups[TAKER]
    world.in_flight.clear()
    importer.apply(pulled.batches[0])
    importer.apply(pulled.batches[2])
    world.run(lambda: world.settled)
    assert "Abandon" in decided(importer)
    assert world.owners(MINE) == [TAKER]
    assert world.kept(MINE) == ALL


def test_copies_with_another_topic_id_are_not_adopted() -> None:
    """REP-6: the topic was deleted and created again during the copy."""
    world = begin()
    until(world, Export)
    exporter = world.groups[GIVER]
    exporter.apply(DeleteTopic(MINE, 0))
    exporter.apply(Subscribe(MINE, "s", FromEarliest(), 0))
    exporter.apply(OpenProducer(MINE, "p", "inc-1", 0))
    world.put(exporter, MINE, MESSAGES)
    importer = world.groups[TAKER]
    world.run(lambda: exporter.holdings.frozen is not None)
    rows = state.moved_out(exporter.holdings)
    claim = importer.holdings.claim
    assert claim is not None
    assert importer.result(do.Adopt(claim.move, LOW, AT, 0, 3, 9, rows)) == MoveStep(False)
    world.run(lambda: world.settled)
    assert world.kept(MINE) == ALL
    assert topic_of(importer.leader).id == 3


def test_adopted_part_is_not_abandoned() -> None:
    """REP-6"""
    world = begin()
    until(world, Adopted)
    importer = world.groups[TAKER]
    claim = importer.holdings.claim
    assert claim is not None
    assert claim.adopted
    importer.apply(do.Abandon(claim.move))
    assert importer.holdings.claim == claim
    world.run(lambda: world.settled)
    assert world.kept(MINE) == ALL


def test_second_freeze_is_refused() -> None:
    """REP-6: this holds for any proposing node."""
    world = begin()
    until(world, Exported)
    exporter = world.groups[GIVER]
    frozen = exporter.holdings.frozen
    party = PeerGroup("g-b", (NodeId("x/g-b"),))
    assert exporter.result(do.Freeze("n", key_of("g-b"), party)) == MoveStep(False)
    assert exporter.holdings.frozen == frozen


# -- a group that leaves --


def retiring() -> World:
    """Return a world in which the importer owns a part and retires."""
    world = begin()
    world.run(lambda: world.settled)
    world.retire(world.groups[TAKER])
    return world


def test_retiring_group_asks_the_next_group_to_import_its_arc() -> None:
    """REP-6"""
    world = retiring()
    until(world, ImportAll)
    importer, exporter = world.groups[TAKER], world.groups[GIVER]
    assert world.sent[-1] == (
        importer.leader.me,
        exporter.leader.me,
        ImportAll(PeerGroup(TAKER, importer.nodes)),
    )
    world.run(lambda: world.settled)
    assert decided(importer)[-3:] == ["Retire", "Freeze", "Release"]
    assert exporter.holdings.low == LOW
    world.report()
    assert world.known_facts[TAKER].gone


def test_arc_goes_only_to_a_neighbour_that_is_not_retiring() -> None:
    """REP-6"""
    world = begin()
    world.run(lambda: world.settled)
    exporter = world.groups[GIVER]
    stranger, neighbour = PeerGroup("g-x", (OLD,)), PeerGroup(TAKER, (OLD,))
    world.hear(exporter.leader, OLD, ImportAll(stranger))
    world.hear(exporter.leader, OLD, ImportAll(PeerGroup(TAKER, ())))
    assert exporter.proposed == []
    exporter.apply(do.Retire())
    world.hear(exporter.leader, OLD, ImportAll(neighbour))
    assert exporter.proposed == []


def test_retiring_group_abandons_its_claim_before_it_disappears() -> None:
    """REP-6: otherwise the claimed part would be lost with the group."""
    world = begin()
    until(world, Exported)
    importer = world.groups[TAKER]
    world.retire(importer)
    world.report()
    assert importer.holdings.claim is None or not world.known_facts[TAKER].gone
    world.run(lambda: world.groups[GIVER].holdings.frozen is None)
    world.report()
    assert world.known_facts[TAKER].gone == (importer.holdings.low is None)


def test_claim_is_abandoned_if_a_new_group_takes_over_the_arc() -> None:
    """REP-6: a new group is between the leaving group and its importer."""
    world = retiring()
    until(world, Export)
    exporter = world.groups[GIVER]
    claim = exporter.holdings.claim
    assert claim is not None
    between = key_of("g-b")  # after the importer, in the arc of the exporter
    exporter.apply(do.Freeze("n", between, PeerGroup("g-b", (NodeId("x/g-b"),))))
    exporter.apply(do.Release("n"))
    world.run(lambda: exporter.holdings.claim is None)
    assert decided(exporter)[-1] == "Abandon"
    assert exporter.holdings.low == between


def test_no_part_is_adopted_while_another_part_is_frozen() -> None:
    """REP-6: otherwise the frozen part would extend into the adopted part."""
    world = retiring()
    until(world, Exported)
    exporter = world.groups[GIVER]
    exporter.apply(do.Freeze("n", key_of("g-b"), PeerGroup("g-b", (NodeId("x/g-b"),))))
    for _ in range(200):
        world.step()
    assert exporter.holdings.claim is not None
    assert not exporter.holdings.claim.adopted
    assert not any(isinstance(each, do.Adopt) for each in exporter.decided)  # no Adopt is proposed
    exporter.apply(do.Thaw("n"))
    world.run(lambda: world.settled)
    assert world.kept(MINE) == world.kept(THEIRS) == ALL


def test_exporter_sends_its_trusted_time_and_its_last_timestamp() -> None:
    """REP-6 SVC-9: the last timestamp may be disputed."""
    world = begin()
    registry = world.groups[GIVER].leader.service.machine.registry
    until(world, Export)
    registry.clock.restore(9000, (1000, 9000, Dispute.AHEAD, 0, 0))
    until(world, Exported)
    (given,) = [each[2] for each in world.sent if isinstance(each[2], Exported)]
    assert (given.clock, given.newest) == (1000, 9000)


def test_new_owner_inherits_answered_calls() -> None:
    """REP-6: a duplicate of the call may arrive after the move."""
    world = begin()
    exporter, importer = world.groups[GIVER], world.groups[TAKER]
    exporter.apply(Unsubscribe(MINE, "nobody", 0, "token"))
    world.run(lambda: world.settled)
    assert world.owners(MINE) == [TAKER]
    registry = importer.leader.service.machine.registry
    assert registry.answered.get("token", MINE) == Unsubscribed(already=True)
