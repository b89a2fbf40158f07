"""Test the exact effects of each input to the roster. REP-4, REP-5"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from oncecast.dht.identifiers import Key, key_of
from oncecast.kernel.protocol import Effect, Emit, Later, NodeId, Send
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.ring import roster as module
from oncecast.ring.events import GroupFacts, Leave, Left, RetireGroup, Seat, Unseat, WhereIs
from oncecast.ring.roster import GONE, Card, Gossip, NewCards, Roster, Stamps

ME, A, B = NodeId("me:1"), NodeId("a:1"), NodeId("b:1")
MINE = "g-me"


def make(*seated: str, **options: Any) -> Roster:
    roster = Roster(ME, Random(1), group=MINE, **options)
    roster.seated(seated)
    roster.start()
    roster.drain()
    return roster


def card(process: NodeId, stamp: int = 1, *reported: GroupFacts, **more: Any) -> Card:
    seats = more.pop("seats", tuple(facts.group for facts in reported))
    return Card(process, stamp, "", f"g-{process}", reported, seats, **more)


def facts(group: str, *processes: NodeId, applied: int = 1, **more: Any) -> GroupFacts:
    nodes = tuple(NodeId(f"{each}/{group}") for each in processes)
    low = more.pop("low", key_of("somewhere"))
    return GroupFacts(group, low, nodes[0] if nodes else NodeId(""), nodes, applied, **more)


def neighbors(roster: Roster, *peers: NodeId) -> None:
    for peer in peers:
        roster.observe(NeighborUp(peer))
    roster.drain()


def tick(roster: Roster, seconds: float = 1.0) -> list[Effect]:
    roster.now += seconds
    roster.timeout(Gossip())
    return [each for each in roster.drain() if not isinstance(each, Later)]


def events(effects: list[Effect]) -> list[Any]:
    return [each.event for each in effects if isinstance(each, Emit)]


# -- cards --


def test_process_starts_with_a_card() -> None:
    roster = Roster(ME, Random(1), group=MINE, version="7", epoch_us=100)
    roster.start()
    assert roster.drain() == [Later(1.0, Gossip())]
    assert roster.cards == {ME: Card(ME, 100, "7", MINE, (), ())}


def test_new_neighbour_is_asked_for_its_cards() -> None:
    roster = make()
    roster.observe(NeighborUp(A))
    assert roster.drain() == [Send(A, Stamps(((ME, 1),), True))]


def test_new_card_is_forwarded_once_to_all_other_neighbours() -> None:
    """REP-5"""
    roster = make()
    neighbors(roster, A, B)
    news = NewCards((card(NodeId("c:1")),))
    roster.receive(A, news)
    assert roster.drain() == [Send(B, news)]
    roster.receive(B, news)
    assert roster.drain() == []


def test_older_card_is_ignored() -> None:
    roster = make()
    neighbors(roster, A, B)
    roster.receive(A, NewCards((card(A, 5),)))
    roster.drain()
    roster.receive(A, NewCards((card(A, 4),)))
    assert roster.drain() == []
    assert roster.cards[A].stamp == 5


def test_neighbour_with_older_cards_gets_the_newer_cards() -> None:
    roster = make()
    roster.receive(B, NewCards((card(B, 3),)))
    roster.drain()
    roster.receive(A, Stamps(((ME, 0), (B, 3), (A, 9)), True))
    assert roster.drain() == [
        Send(A, NewCards((roster.cards[ME],))),
        Send(A, Stamps(((ME, roster.cards[ME].stamp), (B, 3)), False)),
    ]


def test_former_neighbour_gets_no_cards() -> None:
    roster = make()
    neighbors(roster, A, B)
    roster.observe(NeighborDown(A))
    roster.receive(B, NewCards((card(NodeId("c:1")),)))
    assert roster.drain() == []


def test_dropped_card_is_not_accepted_again_for_thirty_seconds() -> None:
    """REP-5: otherwise processes that drop it later would spread it again."""
    roster = make()
    old = NewCards((card(A, 5),))
    roster.receive(B, old)
    tick(roster, 10.0)
    assert A in roster.cards
    tick(roster, 0.5)
    assert A not in roster.cards
    tick(roster, 29.75)
    roster.receive(B, old)
    assert A not in roster.cards
    roster.receive(B, NewCards((card(A, 6),)))
    assert roster.cards[A].stamp == 6


def test_dropped_card_is_accepted_again_after_thirty_seconds() -> None:
    roster = make()
    roster.receive(B, NewCards((card(A, 5),)))
    tick(roster, 10.5)
    tick(roster, 30.0)
    roster.receive(B, NewCards((card(A, 5),)))
    assert A in roster.cards


def test_one_neighbour_is_asked_for_its_cards_each_second() -> None:
    """REP-5"""
    roster = Roster(ME, Random(1), group=MINE)
    roster.observe(NeighborUp(A))
    assert roster.drain() == [Send(A, Stamps((), True))]
    roster.start()
    assert roster.drain() == [Send(A, NewCards((roster.cards[ME],))), Later(1.0, Gossip())]
    roster.now = 1.0
    roster.timeout(Gossip())
    assert roster.drain() == [Later(1.0, Gossip()), Send(A, Stamps(((ME, 1),), True))]
    roster.now = 3.0  # the card of this process is due
    roster.timeout(Gossip())
    assert roster.cards[ME].stamp == 3_000_000
    assert roster.drain() == [
        Later(1.0, Gossip()),
        Send(A, NewCards((roster.cards[ME],))),
        Send(A, Stamps(((ME, 3_000_000),), True)),
    ]


def test_restarted_process_has_a_newer_card() -> None:
    """The new stamp is above the stamp of the old card, whatever the clock says."""
    roster = make()
    neighbors(roster, A)
    roster.receive(A, NewCards((card(ME, 1 << 40),)))
    assert roster.drain() == []
    tick(roster)
    assert roster.cards[ME].stamp == (1 << 40) + 1


def test_backward_clock_jump_does_not_create_an_older_card() -> None:
    roster = make()
    tick(roster, 100.0)
    before = roster.cards[ME].stamp
    roster.seated(("g",))
    tick(roster, -50.0)
    assert roster.cards[ME].stamp == before + 1


def test_unchanged_card_is_renewed_three_times_within_its_lifetime() -> None:
    """NET-6: the cost of a card grows with the ring. Applied commands do not cause a new card."""
    roster = make("g", gone_after=10.0)
    neighbors(roster, A)
    leads = NodeId("me:1/g")
    roster.receive(leads, facts("g", ME, A))
    roster.drain()
    spread = []
    for second in range(1, 13):
        roster.receive(leads, facts("g", ME, A, applied=second))
        spread += [second for each in tick(roster) if is_news(each)]
    assert spread == [3, 6, 9, 12]
    assert roster.cards[ME].facts == (facts("g", ME, A, applied=12),)


@pytest.mark.parametrize("change", ["seats", "asks", "gone", "retired"])
def test_changed_card_is_sent_at_once(change: str) -> None:
    """REP-5 REP-6"""
    roster = make("g", gone_after=10.0, replicas=1)
    neighbors(roster, A)
    roster.receive(NodeId("me:1/g"), facts("g", ME))
    roster.receive(A, NewCards((card(A, 1, seats=("h",)),)))
    roster.drain()
    if change == "seats":
        roster.seated(("h",))
    elif change == "asks":
        roster.receive(NodeId("me:1/g"), WhereIs("i"))
    elif change == "gone":
        roster.receive(B, NewCards((card(B, 1, gone=("h",)),)))
    else:
        roster.receive(NodeId("me:1/g"), facts("g", ME, applied=2, retired=True))
    roster.drain()
    assert any(map(is_news, tick(roster)))
    assert not any(map(is_news, tick(roster))) or change == "asks"  # the process stops asking


def is_news(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, NewCards)


def test_card_with_an_invalid_stamp_is_ignored() -> None:
    roster = make()
    for stamp, kept in ((-1, []), (1 << 62, []), (0, [0]), ((1 << 62) - 1, [(1 << 62) - 1])):
        roster.receive(A, NewCards((card(A, stamp),)))
        assert [each.stamp for each in roster.cards.values() if each.process == A] == kept
    roster.receive(A, NewCards((card(A, 1 << 62),)))
    assert roster.cards[A].stamp == (1 << 62) - 1


def test_card_is_sent_to_a_neighbour_without_it() -> None:
    roster = make()
    roster.receive(B, NewCards((card(B, 0),)))
    roster.receive(A, Stamps(((ME, 1),), False))
    assert roster.drain() == [Send(A, NewCards((card(B, 0),)))]


def test_message_has_at_most_200_cards_and_roster_at_most_10_000() -> None:
    """REP-5"""
    roster = make()
    cards = [card(NodeId(name)) for name in names(10_001)]
    roster.receive(A, NewCards(tuple(cards[:199])))
    neighbors(roster, A)
    roster.receive(A, Stamps((), True))
    everything = tuple(roster.cards.values())
    stamps = tuple((each.process, each.stamp) for each in everything)
    assert roster.drain() == [Send(A, NewCards(everything)), Send(A, Stamps(stamps, False))]
    roster.receive(A, NewCards(tuple(cards[199:400])))
    assert len(roster.cards) == 400
    roster.receive(A, Stamps((), True))
    news, mine = [each.message for each in roster.drain() if isinstance(each, Send)]
    assert isinstance(news, NewCards)
    assert isinstance(mine, Stamps)
    assert len(news.cards) == len(mine.stamps) == 200
    for at in range(399, 10_001, 200):
        roster.receive(A, NewCards(tuple(cards[at : at + 200])))
    assert len(roster.cards) == 10_000
    assert len(roster.backups(MINE)) == 3


def test_number_of_processes_is_limited() -> None:
    roster = make(cards_max=2)
    roster.receive(A, NewCards((card(A), card(B))))
    assert list(roster.cards) == [ME, A]
    roster.receive(A, NewCards((card(A, 2),)))
    assert roster.cards[A].stamp == 2


def test_all_cards_arrive_even_if_they_exceed_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REP-5"""
    monkeypatch.setattr(module, "CARDS_MAX", 10)
    knows, asks = make(), Roster(A, Random(2), group="g-a")
    knows.cards.update({each.process: each for each in map(card, map(NodeId, names(50)))})
    for _ in range(60):
        asks.receive(ME, Stamps((), answer=True))
        for effect in asks.drain():
            if isinstance(effect, Send) and isinstance(effect.message, Stamps):
                assert len(effect.message.stamps) <= 10
                knows.receive(A, effect.message)
        for effect in knows.drain():
            assert isinstance(effect, Send)
            assert isinstance(effect.message, NewCards)
            assert len(effect.message.cards) <= 10
            asks.receive(ME, effect.message)
            asks.drain()
    assert asks.cards.keys() == knows.cards.keys()


def names(count: int) -> list[str]:
    return [f"p{number}:1" for number in range(count)]


# -- groups --


def test_facts_with_the_highest_applied_slot_are_kept() -> None:
    """REP-4"""
    roster = make()
    newer, older = facts("g", A, applied=9), facts("g", B, applied=8)
    roster.receive(A, NewCards((card(A, 1, newer), card(B, 1, older))))
    assert roster.groups["g"] == newer
    latest = facts("g", B, applied=9)
    roster.receive(A, NewCards((card(B, 2, latest),)))
    assert roster.groups["g"] == latest


def test_key_belongs_to_the_group_that_owns_its_arc() -> None:
    """REP-4"""
    roster = make()
    assert roster.owner(key_of("g")) is None
    owner = facts("g", A)
    roster.receive(A, NewCards((card(A, 1, owner),)))
    assert roster.owner(key_of("g")) == owner
    assert roster.owner(key_of("somewhere")) is None  # the low end of the arc


def test_key_claimed_by_two_groups_belongs_to_the_nearer_group() -> None:
    """REP-4"""
    roster = make()
    key = key_of("topic")
    ring = sorted((f"g-{number}" for number in range(9)), key=lambda each: away(key, each))
    far, near = facts(ring[5], A, low=before(key)), facts(ring[2], B, low=before(key))
    roster.receive(A, NewCards((card(A, 1, far),)))
    assert roster.owner(key) == far
    roster.receive(A, NewCards((card(B, 1, near),)))
    assert roster.owner(key) == near


def away(key: Key, group: str) -> int:
    return (int.from_bytes(key_of(group)) - int.from_bytes(key)) % 2**256


def before(key: Key) -> Key:
    return Key(((int.from_bytes(key) - 1) % 2**256).to_bytes(32))


@pytest.mark.parametrize("low", ["g-b:1", "somewhere"])
def test_group_that_claims_all_of_a_shared_ring_is_ignored(low: str) -> None:
    """REP-4 REP-6: a process that lost its disk has founded another ring with that group."""
    roster = make()
    known = facts("g-b:1", B, low=key_of(low))
    stranger = facts("g-a:1", A, low=key_of("g-a:1"))
    roster.receive(B, NewCards((card(B, 1, known),)))
    roster.receive(A, NewCards((card(A, 1, stranger),)))
    assert roster.groups == {"g-b:1": known}
    assert all(each.group != "g-a:1" for each in events(tick(roster)))  # and no seat is taken in it
    roster.receive(B, NewCards((card(B, 2, facts("g-b:1", B, low=None, applied=2, retired=True)),)))
    roster.receive(A, NewCards((card(A, 2, stranger),)))
    assert roster.groups["g-a:1"] == stranger  # the only remaining group


def test_group_that_owned_the_whole_ring_is_kept_during_its_export() -> None:
    """REP-5 REP-6: otherwise a process could leave a group that needs its vote."""
    roster = make("g-a:1", replicas=1)
    first = facts("g-a:1", A, low=key_of("g-a:1"))
    importer = facts("g-b:1", B, low=key_of("g-a:1"))
    roster.receive(A, NewCards((card(A, 1, first), card(B, 1, importer))))
    roster.receive(NodeId(f"{ME}/g-a:1"), first)
    assert Unseat("g-a:1", gone=False) in events(tick(roster))
    voted = facts("g-a:1", A, ME, low=key_of("g-a:1"), applied=24)
    roster.receive(A, NewCards((card(A, 2, voted),)))
    assert roster.groups["g-a:1"] == voted
    assert Seat("g-a:1", voted.nodes) in events(tick(roster))


def test_process_with_its_own_ring_learns_of_another_ring() -> None:
    """REP-6: otherwise the process would never stop."""
    roster = make()
    roster.receive(NodeId(f"{ME}/{MINE}"), facts(MINE, ME, low=key_of(MINE)))
    there = facts("g-a:1", A, low=key_of("g-a:1"))
    roster.receive(A, NewCards((card(A, 1, there),)))
    assert roster.groups["g-a:1"] == there


def test_only_the_leader_publishes_facts_at_once() -> None:
    roster = make("g")
    neighbors(roster, A)
    roster.receive(NodeId("me:1/g"), facts("g", A, ME))
    assert (roster.drain(), roster.groups["g"]) == ([], facts("g", A, ME))
    leads = facts("g", ME, A, applied=2)
    roster.receive(NodeId("me:1/g"), leads)
    assert roster.drain() == [Send(A, NewCards((roster.cards[ME],)))]
    assert roster.cards[ME].facts == (leads,)
    roster.receive(NodeId("me:1/g"), facts("g", ME, A, applied=3))
    assert roster.drain() == []


def test_facts_from_replicas_in_other_processes_are_ignored() -> None:
    roster = make()
    roster.receive(NodeId("a:1/g"), facts("g", A))
    assert roster.groups == {}


def test_facts_about_a_group_without_seats_are_dropped() -> None:
    """REP-4: otherwise processes that missed its removal would keep the group as an owner."""
    roster = make(gone_after=10.0, replicas=1)
    roster.receive(A, NewCards((card(A, 1, facts("g-a:1", A)),)))
    tick(roster, 5.0)
    assert "g-a:1" in roster.groups
    tick(roster, 6.0)
    assert "g-a:1" not in roster.groups


def test_replica_that_cannot_reach_a_group_gets_its_facts() -> None:
    """REP-6"""
    roster = make()
    known = facts("g", A)
    roster.receive(A, NewCards((card(A, 1, known),)))
    roster.receive(NodeId("me:1/h"), WhereIs("g"))
    assert roster.drain() == [Send(NodeId("me:1/h"), known)]
    tick(roster)
    assert roster.cards[ME].asks == ("g",)  # the group may be gone


def test_card_asks_for_at_most_a_thousand_groups() -> None:
    roster = make()
    for number in range(1001):
        roster.receive(NodeId("me:1/h"), WhereIs(f"g{number}"))
    tick(roster)
    assert len(roster.cards[ME].asks) == 1000


def test_process_uses_its_card_to_ask_whether_a_group_still_exists() -> None:
    """REP-6"""
    roster, other = make(), Roster(A, Random(2), group="g-a")
    other.start()
    roster.receive(NodeId("me:1/h"), WhereIs("g"))
    assert roster.drain() == []
    tick(roster)
    assert roster.cards[ME].asks == ("g",)
    other.receive(B, NewCards((card(B, 1, gone=("g",)),)))
    other.receive(ME, NewCards((roster.cards[ME],)))
    tick(other)
    assert other.cards[A].gone == ("g",)
    roster.receive(A, NewCards((other.cards[A],)))
    roster.drain()
    roster.receive(NodeId("me:1/h"), WhereIs("g"))
    (reported,) = roster.drain()
    assert isinstance(reported, Send)
    assert isinstance(reported.message, GroupFacts)
    assert reported.message.gone
    tick(roster)
    assert roster.cards[ME].asks == ()


# -- seats --


def ring_of(*processes: NodeId) -> list[NodeId]:
    return sorted(processes, key=lambda each: key_of(f"g-{each}"))


def test_backup_process_takes_a_seat_in_its_group_once() -> None:
    """REP-5"""
    roster = make(replicas=3)
    roster.receive(A, NewCards((card(A, 1, facts("g-a:1", A)), card(B))))
    assert events(tick(roster)) == [Seat("g-a:1", (NodeId("a:1/g-a:1"),))]
    assert events(tick(roster)) == []
    assert "g-a:1" in roster.cards[ME].seats


def test_former_backup_gives_up_its_seat_once_it_has_no_vote() -> None:
    """REP-5"""
    others = [NodeId(each) for each in names(8)]
    ring = ring_of(ME, *others)
    roster = Roster(ME, Random(1), group=f"g-{ME}", replicas=2)
    roster.start()
    far = next(each for each in others if ME not in following(ring, each, 2))
    roster.seated((f"g-{far}",))
    with_vote = facts(f"g-{far}", far, ME)
    cards = [card(each) for each in others if each != far]
    roster.receive(A, NewCards((card(far, 1, with_vote), *cards)))
    assert events(tick(roster)) == []
    without = facts(f"g-{far}", far, applied=2)
    roster.receive(A, NewCards((card(far, 2, without),)))
    assert events(tick(roster)) == [Unseat(f"g-{far}", False)]


def test_member_with_a_stopped_replica_takes_its_seat_again() -> None:
    """REP-5: a late report from the stopped replica could suggest that it still runs."""
    roster = make("g-a:1", replicas=1)
    roster.receive(A, NewCards((card(A, 1, facts("g-a:1", A)), card(B))))
    assert events(tick(roster)) == [Unseat("g-a:1", gone=False)]
    member = facts("g-a:1", A, ME, applied=7)
    roster.receive(NodeId(f"{ME}/g-a:1"), member)
    assert events(tick(roster)) == [Seat("g-a:1", member.nodes)]


def following(ring: list[NodeId], first: NodeId, count: int) -> list[NodeId]:
    at = ring.index(first)
    return (ring[at:] + ring[:at])[:count]


def test_group_without_known_replicas_is_skipped() -> None:
    """REP-5"""
    roster = make()
    roster.seated(("empty",))
    reported = (facts("empty"), facts("g-a:1", A))
    roster.receive(A, NewCards((card(A, 1, *reported),)))
    assert events(tick(roster)) == [Seat("g-a:1", (NodeId("a:1/g-a:1"),))]
    assert "empty" in roster._seated


def test_process_takes_no_seat_in_a_group_backed_up_by_other_processes() -> None:
    """REP-5"""
    others = [NodeId(each) for each in names(8)]
    ring = ring_of(ME, *others)
    roster = Roster(ME, Random(1), group=f"g-{ME}", replicas=2)
    roster.start()
    far = next(each for each in others if ME not in following(ring, each, 2))
    cards = [card(each) for each in others if each != far]
    roster.receive(A, NewCards((card(far, 1, facts(f"g-{far}", far)), *cards)))
    assert events(tick(roster)) == []


def test_group_backups_are_the_processes_after_its_position() -> None:
    """REP-5"""
    others = [NodeId(each) for each in names(8)]
    roster = Roster(ME, Random(1), group=f"g-{ME}", replicas=3)
    roster.start()
    roster.receive(A, NewCards(tuple(map(card, others))))
    ring = ring_of(ME, *others)
    for each in ring:
        assert roster.backups(f"g-{each}") == following(ring, each, 3)


def test_seats_in_a_removed_group_are_given_up() -> None:
    """REP-6: this includes the group's own process, even if it returns with an old disk."""
    roster = make()
    roster.seated((MINE, "g"))
    roster.receive(A, NewCards((card(A, 1, gone=(MINE, "g"), seats=("g",)),)))
    assert sorted(events(tick(roster)), key=str) == [Unseat("g", False), Unseat(MINE, False)]
    tick(roster)
    tick(roster)
    assert roster.cards[ME].gone == ("g",)  # A still has a seat in this group
    assert roster.groups["g"].applied == 1 << 62  # higher than any real slot
    assert MINE in roster.groups  # even though no process has a seat in this group
    roster.receive(A, NewCards((card(A, 2, facts("g", A, applied=GONE - 1), seats=("g",)),)))
    assert roster.groups["g"].gone
    assert events(tick(roster)) == []


# -- leaving --


def test_leaving_process_retires_its_group_and_reports_its_departure() -> None:
    """REP-6"""
    roster = make(MINE)
    roster.request(Leave())
    assert roster.drain() == []  # its group is not known yet
    roster.receive(NodeId(f"me:1/{MINE}"), facts(MINE, ME, A))
    roster.drain()
    roster.request(Leave())
    give_up = [Send(NodeId(f"{each}/{MINE}"), RetireGroup()) for each in (ME, A)]
    assert roster.drain() == give_up
    assert tick(roster) == give_up
    roster.receive(NodeId(f"me:1/{MINE}"), facts(MINE, ME, A, applied=2, retired=True))
    roster.drain()
    assert tick(roster) == []
    roster.receive(NodeId(f"me:1/{MINE}"), facts(MINE, ME, applied=3, retired=True, low=None))
    assert events(tick(roster)) == [Unseat(MINE, True), Left()]
    assert events(tick(roster)) == []


# -- forged cards (SEC-1) --


def replica_says(roster: Roster, said: GroupFacts) -> None:
    roster.receive(NodeId(f"{ME}/{said.group}"), said)
    roster.drain()


def test_forged_card_cannot_remove_a_group_that_has_a_leader() -> None:
    """SEC-1: a single card once made every process delete its replica."""
    roster = make("g")
    replica_says(roster, facts("g", A, ME))
    roster.receive(B, NewCards((card(B, 1, gone=("g",)),)))
    ghost = NodeId(f"{B}/g")
    forged = GroupFacts("g", None, ghost, (ghost,), 1 << 61, retired=True)
    roster.receive(B, NewCards((card(B, 2, forged),)))
    assert not any(isinstance(each, Unseat) for each in events(tick(roster)))
    assert roster.groups["g"].leader == f"{A}/g"


def test_group_data_is_deleted_only_if_the_group_log_records_its_end() -> None:
    """SEC-1"""
    roster = make("g", "h")
    replica_says(roster, facts("g"))
    replica_says(roster, facts("h", A, ME, low=None, retired=True))
    roster.receive(B, NewCards((card(B, 1, gone=("g", "h")),)))
    unseated = [each for each in events(tick(roster)) if isinstance(each, Unseat)]
    assert sorted(unseated, key=str) == [Unseat("g", False), Unseat("h", True)]


@pytest.mark.parametrize(
    "change",
    [
        {"leader": NodeId(f"{A}/g")},
        {"applied": 1 << 62},
        {"applied": (1 << 64) - 1},
        {"applied": -1},
        {"low": Key(b"short")},
        {"nodes": tuple(NodeId(f"{each}/g") for each in range(65))},
    ],
)
def test_invalid_facts_about_a_group_are_ignored(change: dict[str, Any]) -> None:
    """SEC-1: only a group's leader, or a replica without a leader, may publish its facts."""
    mine = GroupFacts("g", None, NodeId(f"{B}/g"), (NodeId(f"{B}/g"),), 5)
    roster = make()
    roster.receive(B, NewCards((card(B, 1, msgspec.structs.replace(mine, **change)),)))
    assert "g" not in roster.groups
    roster.receive(B, NewCards((card(B, 2, mine),)))
    assert roster.groups["g"] == mine
