"""NET-2: test the exact effects of each input to HyParView."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from oncecast.kernel.protocol import (
    Cancel,
    Effect,
    Emit,
    Later,
    NodeId,
    Send,
    Unwatch,
    Value,
    Watch,
)
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.overlay.hyparview import SAMPLE_MAX, WALK_MAX, HyParView
from oncecast.overlay.messages import (
    Accepted,
    Alone,
    Cycle,
    Disconnect,
    ForwardJoin,
    Join,
    Neighbor,
    Refused,
    Shuffle,
    ShuffleReply,
    Unanswered,
)

ME, A, B, C, D, E, CONTACT = map(NodeId, ("me", "a", "b", "c", "d", "e", "contact"))
INCARNATION = 7  # for this node
THEIRS = 1  # for every peer


class FixedDice(Random):
    """A random generator that always chooses the first element."""

    def uniform(self, a: float, b: float) -> float:
        return 1.0

    def random(self) -> float:
        return 1.0  # so the view never trades a neighbour

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        return list(population[:k])

    def getrandbits(self, k: int, /) -> int:
        return INCARNATION


def started(
    active: Sequence[NodeId] = (),
    passive: Sequence[NodeId] = (),
    contacts: Sequence[NodeId] = (),
    **options: Any,
) -> HyParView:
    """Return a started node with an active view of at most 3."""
    view = HyParView(ME, FixedDice(), contacts=contacts, **{"active_max": 3, **options})
    view.start()
    for peer in active:
        view.receive(peer, Neighbor(THEIRS, urgent=False))
    view.passive.update(dict.fromkeys(passive))
    view.drain()
    return view


def received(view: HyParView, sender: NodeId, message: Value) -> list[Effect]:
    view.receive(sender, message)  # type: ignore[arg-type]
    return view.drain()


def lose_link(view: HyParView, peer: NodeId) -> list[Effect]:
    del view.watched[peer]  # the stack does the same
    view.down(peer)
    return view.drain()


def asked(peer: NodeId, *, urgent: bool = False) -> list[Effect]:
    return [
        Watch(peer),
        Send(peer, Neighbor(INCARNATION, urgent)),
        Later(2.0, Unanswered(peer)),
    ]


def test_start_joins_through_a_contact() -> None:
    view = HyParView(ME, FixedDice(), contacts=[ME, CONTACT, A])
    view.start()
    assert view.drain() == [
        Later(10.0, Cycle()),
        Watch(CONTACT),
        Send(CONTACT, Join(INCARNATION)),
        Later(2.0, Unanswered(CONTACT)),
    ]


def test_first_node_waits_for_a_join() -> None:
    view = HyParView(ME, FixedDice(), contacts=[ME])
    view.start()
    assert view.drain() == [Later(10.0, Cycle())]


def test_accepted_contact_becomes_a_neighbour() -> None:
    view = started(contacts=[CONTACT])
    assert received(view, CONTACT, Accepted(THEIRS)) == [
        Cancel(Unanswered(CONTACT)),
        Emit(NeighborUp(CONTACT)),
    ]


def test_join_makes_its_sender_a_neighbour_and_starts_walks() -> None:
    view = started(active=[A, B])
    assert received(view, C, Join(THEIRS)) == [
        Watch(C),
        Emit(NeighborUp(C)),
        Send(C, Accepted(INCARNATION)),
        Send(A, ForwardJoin(C, 6)),
        Send(B, ForwardJoin(C, 6)),
    ]


def test_full_view_evicts_a_neighbour_for_a_newcomer() -> None:
    view = started(active=[A, B, C])
    effects = received(view, D, Join(THEIRS))
    assert effects[:5] == [
        Send(A, Disconnect()),
        Emit(NeighborDown(A)),
        Unwatch(A),
        Watch(D),
        Emit(NeighborUp(D)),
    ]
    assert list(view.active) == [B, C, D]
    assert list(view.passive) == [A]


def test_repeated_join_is_answered_again_and_changes_nothing() -> None:
    view = started(active=[A, B])
    received(view, C, Join(THEIRS))
    assert received(view, C, Join(THEIRS)) == [Send(C, Accepted(INCARNATION))]


def test_restarted_neighbour_is_reported_down_and_up() -> None:
    view = started(active=[A, B])
    assert received(view, A, Neighbor(THEIRS + 1, urgent=False)) == [
        Emit(NeighborDown(A)),
        Unwatch(A),
        Watch(A),
        Emit(NeighborUp(A)),
        Send(A, Accepted(INCARNATION)),
    ]


def test_forward_join_is_passed_to_another_neighbour() -> None:
    view = started(active=[A, B, C])
    assert received(view, A, ForwardJoin(D, 6)) == [Send(B, ForwardJoin(D, 5))]
    assert received(view, B, ForwardJoin(A, 6)) == [Send(C, ForwardJoin(A, 5))]
    assert view.passive == {}


def test_forward_join_adds_the_newcomer_to_passive_views_on_its_way() -> None:
    view = started(active=[A, B])
    assert received(view, A, ForwardJoin(D, 3)) == [Send(B, ForwardJoin(D, 2))]
    assert list(view.passive) == [D]


def test_last_node_in_a_walk_sends_an_urgent_request() -> None:
    view = started(active=[A, B, C])
    assert received(view, A, ForwardJoin(D, 0)) == asked(D, urgent=True)


def test_walk_without_a_next_node_ends() -> None:
    view = started(active=[A])
    assert received(view, A, ForwardJoin(D, 6)) == asked(D, urgent=True)


def test_last_node_in_a_walk_evicts_a_neighbour_for_the_newcomer() -> None:
    view = started(active=[A, B, C])
    received(view, A, ForwardJoin(D, 0))
    assert received(view, D, Accepted(THEIRS)) == [
        Cancel(Unanswered(D)),
        Send(A, Disconnect()),
        Emit(NeighborDown(A)),
        Unwatch(A),
        Emit(NeighborUp(D)),
    ]


def test_walk_that_returns_to_its_origin_ends() -> None:
    view = started(active=[A, B])
    assert received(view, A, ForwardJoin(ME, 0)) == []
    assert received(view, A, ForwardJoin(B, 0)) == []


def test_walk_from_an_unknown_node_is_answered_with_disconnect() -> None:
    view = started(active=[A, B])
    assert received(view, C, ForwardJoin(D, 2)) == [Send(C, Disconnect())]
    assert received(view, C, Shuffle(C, 2, (C,))) == [Send(C, Disconnect())]


def test_walk_from_a_peer_with_an_open_request_is_accepted() -> None:
    view = started(active=[A, B], passive=[C])
    lose_link(view, B)
    assert received(view, C, Shuffle(C, 2, (C,))) == [Send(A, Shuffle(C, 1, (C,)))]


def test_full_view_refuses_nonurgent_requests() -> None:
    view = started(active=[A, B, C])
    assert received(view, D, Neighbor(THEIRS, urgent=False)) == [Send(D, Refused())]


def test_full_view_accepts_urgent_requests() -> None:
    view = started(active=[A, B, C])
    received(view, D, Neighbor(THEIRS, urgent=True))
    assert list(view.active) == [B, C, D]


def test_lost_neighbour_is_replaced_from_the_passive_view() -> None:
    view = started(active=[A, B], passive=[C, D], active_max=2)
    assert lose_link(view, A) == [Emit(NeighborDown(A)), *asked(C)]
    assert received(view, C, Accepted(THEIRS)) == [
        Cancel(Unanswered(C)),
        Emit(NeighborUp(C)),
    ]
    assert (list(view.active), list(view.passive)) == ([B, C], [D])


def test_request_is_urgent_when_no_neighbour_is_left() -> None:
    view = started(active=[A], passive=[C], active_max=1)
    assert lose_link(view, A) == [Emit(NeighborDown(A)), *asked(C, urgent=True)]


def test_refused_request_goes_to_the_next_peer_and_the_first_stays_passive() -> None:
    view = started(active=[A, B], passive=[C, D], active_max=2)
    lose_link(view, A)
    assert received(view, C, Refused()) == [Cancel(Unanswered(C)), Unwatch(C), *asked(D)]
    assert list(view.passive) == [C, D]
    assert received(view, D, Refused()) == [Cancel(Unanswered(D)), Unwatch(D)]


def test_dead_or_silent_candidate_is_dropped() -> None:
    view = started(active=[A, B], passive=[C, D, E], active_max=2)
    lose_link(view, A)
    assert lose_link(view, C) == [Cancel(Unanswered(C)), *asked(D)]
    view.timeout(Unanswered(D))
    assert view.drain() == [Cancel(Unanswered(D)), Unwatch(D), *asked(E)]
    assert list(view.passive) == [E]


def test_node_without_candidates_shuffles_at_once_after_a_loss() -> None:
    view = started(active=[A, B], active_max=2)
    assert lose_link(view, A) == [
        Emit(NeighborDown(A)),
        Send(B, Shuffle(ME, 6, (ME,))),
    ]
    assert received(view, C, ShuffleReply((D,))) == asked(D)


def test_accepted_peer_is_disconnected_if_the_view_is_full_again() -> None:
    view = started(active=[A, B], passive=[C], active_max=2)
    lose_link(view, A)
    received(view, D, Neighbor(THEIRS, urgent=False))
    assert received(view, C, Accepted(THEIRS)) == [
        Send(C, Disconnect()),
        Cancel(Unanswered(C)),
        Unwatch(C),
    ]
    assert list(view.active) == [B, D]


def test_disconnected_neighbour_becomes_passive_until_the_next_cycle() -> None:
    view = started(active=[A, B], passive=[C])
    assert received(view, A, Disconnect()) == [Emit(NeighborDown(A)), Unwatch(A)]
    assert list(view.passive) == [C, A]
    assert received(view, A, Disconnect()) == []
    view.timeout(Cycle())
    assert view.drain()[:6] == [*asked(C), *asked(A)]


def test_refill_at_once_option_replaces_a_disconnected_neighbour_immediately() -> None:
    view = started(active=[A, B], passive=[C], active_max=2, refill_at_once=True)
    assert received(view, A, Disconnect()) == [Emit(NeighborDown(A)), Unwatch(A), *asked(C)]


def test_last_neighbour_is_replaced_at_once() -> None:
    view = started(active=[A], passive=[C], active_max=1)
    assert received(view, A, Disconnect()) == [
        Emit(NeighborDown(A)),
        Unwatch(A),
        *asked(C, urgent=True),
    ]


def test_node_without_neighbours_joins_again_through_its_contacts() -> None:
    view = started(active=[A], contacts=[CONTACT])
    lose_link(view, CONTACT)
    assert lose_link(view, A) == [Emit(NeighborDown(A)), Later(1.0, Alone())]
    view.timeout(Alone())
    assert view.drain() == [
        Watch(CONTACT),
        Send(CONTACT, Join(INCARNATION)),
        Later(2.0, Unanswered(CONTACT)),
    ]
    assert lose_link(view, CONTACT) == [Cancel(Unanswered(CONTACT)), Later(1.0, Alone())]


def test_node_with_a_new_neighbour_does_not_join_again() -> None:
    view = started(active=[A], contacts=[CONTACT])
    lose_link(view, CONTACT)
    lose_link(view, A)
    received(view, B, Neighbor(THEIRS, urgent=False))
    view.timeout(Alone())
    assert view.drain() == []


def test_full_view_sometimes_trades_a_neighbour_for_a_passive_peer() -> None:
    """NET-2: otherwise two partitions with full views would never reconnect."""
    view = started(active=[A, B, C], passive=[D, E])
    view.timeout(Cycle())
    assert not [each for each in view.drain() if isinstance(each, Watch)]
    view.rng.random = lambda: 0.0  # type: ignore[method-assign]
    view.timeout(Cycle())
    assert view.drain()[:2] == [Watch(D), Send(D, Neighbor(INCARNATION, urgent=True))]
    view.receive(D, Accepted(THEIRS))
    assert list(view.active) == [B, C, D]
    assert Send(A, Disconnect()) in view.drain()


def test_view_with_a_free_slot_does_not_trade_neighbours() -> None:
    view = started(active=[A], passive=[D])
    view.rng.random = lambda: 0.0  # type: ignore[method-assign]
    view.timeout(Cycle())
    assert Send(D, Neighbor(INCARNATION, urgent=True)) not in view.drain()


def test_lost_neighbour_is_asked_again_in_each_cycle() -> None:
    view = started(active=[A, B, C])
    lose_link(view, A)
    view.timeout(Cycle())
    assert view.drain()[:3] == asked(A, urgent=True)
    assert received(view, A, Accepted(THEIRS)) == [
        Cancel(Unanswered(A)),
        Emit(NeighborUp(A)),
    ]
    view.timeout(Cycle())
    assert Send(A, Neighbor(INCARNATION, urgent=True)) not in view.drain()


def test_shuffle_offers_the_node_itself_and_peers_from_both_views() -> None:
    view = started(active=[A, B, C], passive=[D, E], shuffle_active=1, shuffle_passive=1)
    view.timeout(Cycle())
    assert view.drain() == [Send(A, Shuffle(ME, 6, (ME, B, D))), Later(10.0, Cycle())]


def test_shuffle_is_passed_on_until_its_last_step() -> None:
    view = started(active=[A, B, C], passive=[D])
    assert received(view, A, Shuffle(E, 2, (E,))) == [Send(B, Shuffle(E, 1, (E,)))]
    assert received(view, A, Shuffle(E, 1, (E,))) == [Send(E, ShuffleReply((D,)))]
    assert list(view.passive) == [D, E]


def test_shuffle_sample_first_replaces_the_peers_sent_in_exchange() -> None:
    view = started(active=[A, B, C], passive=[D, E], passive_max=2, shuffle_passive=1)
    view.timeout(Cycle())  # the shuffle offers D
    view.drain()
    assert received(view, A, ShuffleReply((ME, A, NodeId("new")))) == []
    assert list(view.passive) == [E, "new"]


def test_shuffle_reply_without_a_shuffle_is_dropped() -> None:
    view = started(active=[A])
    assert received(view, B, ShuffleReply((C,))) == []
    assert (view.passive, view.dropped) == ({}, 1)


@pytest.mark.parametrize(
    "message",
    [
        ForwardJoin(NodeId(""), 3),
        ForwardJoin(NodeId("x" * 256), 3),
        ForwardJoin(B, -1),
        ForwardJoin(B, WALK_MAX + 1),
        Shuffle(NodeId(""), 1, ()),
        Shuffle(B, WALK_MAX + 1, ()),
        Shuffle(B, 1, (B,) * (SAMPLE_MAX + 1)),
        ShuffleReply((B,) * (SAMPLE_MAX + 1)),
    ],
)
def test_invalid_message_is_dropped_and_counted(message: Value) -> None:
    view = started(active=[A])
    assert (received(view, A, message), view.dropped) == ([], 1)


def test_sample_with_an_impossible_name_is_dropped_and_counted() -> None:
    view = started(active=[A])
    received(view, A, Shuffle(B, 1, (B, NodeId(""))))
    assert (view.passive, view.dropped) == ({}, 1)


def test_message_that_claims_to_come_from_its_receiver_is_dropped() -> None:
    view = started(active=[A])
    assert (received(view, ME, Join(THEIRS)), view.dropped) == ([], 1)


def test_flood_of_newcomers_does_not_exceed_the_limits() -> None:
    view = started(active=[A], passive_max=5)
    for index in range(100):
        received(view, A, ForwardJoin(NodeId(f"n{index}"), 0))
    assert len(view.asked) == 2 * view.active_max
    assert len(view.passive) == 5


def test_peers_that_refused_are_asked_again_when_no_other_peer_is_left() -> None:
    view = started(active=[A, B], passive=[C], active_max=2)
    lose_link(view, A)
    received(view, C, Refused())
    assert lose_link(view, B) == [Emit(NeighborDown(B)), *asked(C, urgent=True)]
