"""Test the exact effects of each input to Plumtree. NET-3"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.kernel.protocol import Cancel, Emit, Later, NodeId, Send
from oncecast.overlay.events import (
    NUMBER_MAX,
    Broadcast,
    MessageId,
    NeighborDown,
    NeighborUp,
    Received,
)
from oncecast.overlay.messages import Announce, Announcement, Gossip, Graft, IHave, Missing, Prune
from oncecast.overlay.plumtree import ROUND_MAX, Plumtree

A, B, C, D, FAR = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("d"), NodeId("far")
M1, M2, M3 = MessageId(FAR, 1), MessageId(FAR, 2), MessageId(FAR, 3)


def make(
    *, eager: tuple[NodeId, ...] = (), lazy: tuple[NodeId, ...] = (), **options: Any
) -> Plumtree:
    tree = Plumtree(A, Random(1), **options)
    for peer in (*eager, *lazy):
        tree.observe(NeighborUp(peer))
    for peer in lazy:
        tree.receive(peer, Prune())
    assert tree.drain() == []
    return tree


def ihave(key: MessageId, hops: int = 1) -> IHave:
    return IHave((Announcement(key, hops),))


def test_new_neighbours_are_eager() -> None:
    assert list(make(eager=(B, C)).eager) == [B, C]


def test_broadcast_sends_the_payload_to_eager_peers_and_emits_nothing() -> None:
    tree = make(eager=(B, C))
    mine = MessageId(A, 1)
    tree.request(Broadcast(mine, b"x"))
    assert tree.drain() == [Send(B, Gossip(mine, 1, b"x")), Send(C, Gossip(mine, 1, b"x"))]


def test_first_gossip_is_emitted_and_sent_to_all_other_eager_peers() -> None:
    tree = make(eager=(B, C, D))
    tree.receive(C, Gossip(M1, 3, b"x"))
    assert tree.drain() == [
        Emit(Received(M1, b"x")),
        Send(B, Gossip(M1, 4, b"x")),
        Send(D, Gossip(M1, 4, b"x")),
    ]


def test_duplicate_gossip_prunes_its_sender() -> None:
    tree = make(eager=(B, C))
    tree.receive(B, Gossip(M1, 1, b"x"))
    tree.drain()
    tree.receive(C, Gossip(M1, 1, b"x"))
    assert tree.drain() == [Send(C, Prune())]
    assert (list(tree.eager), list(tree.lazy)) == ([B], [C])


def test_prune_makes_its_sender_lazy() -> None:
    tree = make(eager=(B, C))
    tree.receive(B, Prune())
    assert (list(tree.eager), list(tree.lazy)) == ([C], [B])


def test_first_gossip_over_a_lazy_link_makes_it_eager() -> None:
    tree = make(lazy=(B,))
    tree.receive(B, Gossip(M1, 1, b"x"))
    assert tree.drain() == [Emit(Received(M1, b"x"))]
    assert (list(tree.eager), list(tree.lazy)) == ([B], [])


def test_lazy_peers_get_batched_announcements_except_for_their_own_payloads() -> None:
    tree = make(eager=(D,), lazy=(B, C), announce_after=0.1)
    tree.request(Broadcast(MessageId(A, 1), b"x"))
    assert tree.drain()[1:] == [Later(0.1, Announce())]
    tree.receive(D, Gossip(M1, 1, b"y"))
    assert tree.drain() == [Emit(Received(M1, b"y"))]
    tree.timeout(Announce())
    both = IHave((Announcement(MessageId(A, 1), 1), Announcement(M1, 2)))
    assert tree.drain() == [Send(B, both), Send(C, both)]
    tree.timeout(Announce())
    assert tree.drain() == []


def test_payload_is_not_announced_to_its_sender() -> None:
    tree = make(eager=(B,), lazy=(C,))
    tree.receive(B, Gossip(M1, 1, b"x"))
    tree.receive(B, Prune())
    tree.drain()
    tree.timeout(Announce())
    assert (list(tree.lazy), tree.drain()) == ([C, B], [Send(C, ihave(M1, 2))])


def test_full_batch_of_announcements_is_sent_at_once() -> None:
    tree = make(lazy=(B,), announce_max=2)
    tree.request(Broadcast(MessageId(A, 1), b""))
    tree.drain()
    tree.request(Broadcast(MessageId(A, 2), b""))
    batch = IHave((Announcement(MessageId(A, 1), 1), Announcement(MessageId(A, 2), 1)))
    assert tree.drain() == [Send(B, batch)]


def test_waiting_announcements_are_sent_before_a_link_becomes_eager() -> None:
    """Otherwise the link would carry neither the payload nor its announcement."""
    tree = make(lazy=(B,))
    tree.request(Broadcast(MessageId(A, 1), b""))
    tree.drain()
    tree.receive(B, Graft(None, 1))
    assert tree.drain() == [Send(B, ihave(MessageId(A, 1)))]
    assert list(tree.eager) == [B]


def test_announced_payload_that_does_not_arrive_is_grafted() -> None:
    tree = make(lazy=(B, C), graft_after=0.5, graft_again_after=0.2)
    tree.receive(B, ihave(M1, 4))
    assert tree.drain() == [Later(0.5, Missing(M1))]
    tree.receive(C, ihave(M1, 6))
    assert tree.drain() == []
    tree.timeout(Missing(M1))
    assert tree.drain() == [Send(B, Graft(M1, 4)), Later(0.2, Missing(M1))]
    assert list(tree.eager) == [B]
    tree.timeout(Missing(M1))
    assert tree.drain() == [Send(C, Graft(M1, 6)), Later(0.2, Missing(M1))]


def test_announcement_is_dropped_when_no_announcer_sends_the_payload() -> None:
    tree = make(lazy=(B,))
    tree.receive(B, ihave(M1))
    tree.timeout(Missing(M1))
    tree.drain()
    tree.timeout(Missing(M1))
    assert (tree.drain(), tree.missing) == ([], {})


def test_payload_that_arrives_in_time_cancels_the_graft() -> None:
    tree = make(eager=(B,), lazy=(C,))
    tree.receive(C, ihave(M1))
    tree.drain()
    tree.receive(B, Gossip(M1, 1, b"x"))
    assert tree.drain() == [
        Emit(Received(M1, b"x")),
        Later(0.05, Announce()),
        Cancel(Missing(M1)),
    ]
    assert tree.missing == {}


def test_announcing_a_known_payload_changes_nothing() -> None:
    tree = make(eager=(B,))
    tree.receive(B, Gossip(M1, 1, b"x"))
    tree.drain()
    tree.receive(B, ihave(M1))
    assert (tree.drain(), tree.missing) == ([], {})


def test_graft_is_answered_with_the_payload_and_makes_the_link_eager() -> None:
    tree = make(eager=(B,), lazy=(C,))
    tree.receive(B, Gossip(M1, 1, b"x"))
    tree.timeout(Announce())
    tree.drain()
    tree.receive(C, Graft(M1, 2))
    assert tree.drain() == [Send(C, Gossip(M1, 2, b"x"))]
    assert list(tree.eager) == [B, C]


def test_graft_for_an_uncached_payload_still_makes_the_link_eager() -> None:
    tree = make(eager=(B,), lazy=(C,), cache_max=1)
    tree.receive(B, Gossip(M1, 1, b"x"))
    tree.receive(B, Gossip(M2, 1, b"y"))
    tree.timeout(Announce())
    tree.drain()
    tree.receive(C, Graft(M1, 2))
    assert (tree.drain(), list(tree.eager)) == ([], [B, C])


def test_link_shorter_by_the_threshold_replaces_the_longer_link() -> None:
    """This is the optimization from the paper."""
    tree = make(eager=(B,), lazy=(C, D), threshold=3)
    tree.receive(C, ihave(M1, 4))
    tree.receive(D, ihave(M1, 2))
    tree.drain()
    tree.receive(B, Gossip(M1, 5, b"x"))
    assert tree.drain() == [
        Emit(Received(M1, b"x")),
        Later(0.05, Announce()),
        Cancel(Missing(M1)),
        Send(C, ihave(M1, 6)),
        Send(D, ihave(M1, 6)),
        Send(D, Graft(None, 2)),
        Send(B, Prune()),
    ]
    assert (list(tree.eager), list(tree.lazy)) == ([D], [C, B])


def test_slightly_shorter_link_does_not_replace_a_link() -> None:
    tree = make(eager=(B,), lazy=(C,), threshold=3)
    tree.receive(C, ihave(M1, 3))
    tree.receive(B, Gossip(M1, 5, b"x"))
    assert (list(tree.eager), list(tree.lazy)) == ([B], [C])


def test_sender_stays_eager_if_its_own_announcement_was_nearer() -> None:
    """The sender may have restarted since, and received the payload over more hops."""
    tree = make(lazy=(B,), threshold=3)
    tree.receive(B, ihave(M1, 1))
    tree.drain()
    tree.receive(B, Gossip(M1, 9, b"x"))
    assert tree.drain() == [Emit(Received(M1, b"x")), Cancel(Missing(M1))]
    assert list(tree.eager) == [B]


def test_lost_neighbour_gets_no_payloads_and_no_grafts() -> None:
    tree = make(eager=(B,), lazy=(C, D))
    tree.receive(C, ihave(M1))
    tree.receive(D, ihave(M1, 2))
    tree.drain()
    tree.observe(NeighborDown(B))
    tree.observe(NeighborDown(C))
    tree.timeout(Missing(M1))
    assert tree.drain() == [Send(D, Graft(M1, 2)), Later(0.25, Missing(M1))]
    assert (list(tree.eager), list(tree.lazy)) == ([D], [])


def test_messages_from_unknown_nodes_add_neither_links_nor_announcements() -> None:
    tree = make(eager=(B,))
    tree.receive(FAR, ihave(M1))
    tree.receive(FAR, Graft(None, 1))
    tree.receive(FAR, Prune())
    assert tree.drain() == []
    tree.receive(FAR, Gossip(M1, 1, b"x"))
    assert tree.drain() == [Emit(Received(M1, b"x")), Send(B, Gossip(M1, 2, b"x"))]
    assert (list(tree.eager), list(tree.lazy), tree.missing) == ([B], [], {})


NONSENSE: list[Gossip | IHave | Graft] = [
    Gossip(MessageId(FAR, 0), 1, b""),
    Gossip(MessageId(FAR, -5), 1, b""),
    Gossip(MessageId(FAR, NUMBER_MAX + 1), 1, b""),
    Gossip(MessageId(NodeId(""), 1), 1, b""),
    Gossip(MessageId(NodeId("x" * 256), 1), 1, b""),
    Gossip(M1, -1, b""),
    Gossip(M1, ROUND_MAX, b""),
    ihave(MessageId(FAR, 0)),
    ihave(M1, -1),
    Graft(M1, -1),
    Graft(M1, ROUND_MAX),
]


@pytest.mark.parametrize("message", NONSENSE, ids=repr)
def test_invalid_messages_are_dropped_and_counted(
    message: Gossip | IHave | Graft,
) -> None:
    tree = make(eager=(B,))
    tree.receive(B, message)
    assert (tree.drain(), tree.dropped) == ([], 1)


def test_memory_for_announcements_is_bounded() -> None:
    tree = make(lazy=(B,), missing_max=2)
    tree.receive(B, IHave(tuple(Announcement(MessageId(FAR, n), 1) for n in range(1, 100))))
    assert list(tree.missing) == [M1, M2]


def test_memory_for_seen_numbers_is_bounded_in_any_order() -> None:
    """A dropped gap counts as seen. Recovery fills it."""
    tree = make(eager=(B,), gaps_max=2)
    for number in (2, 4, 6, NUMBER_MAX):
        tree.receive(B, Gossip(MessageId(FAR, number), 1, b""))
    assert tree.seen[FAR].gaps == [(5, 5), (7, NUMBER_MAX - 1)]
    tree.drain()
    tree.receive(B, Gossip(M1, 1, b""))
    assert tree.drain() == [Send(B, Prune())]


def test_memory_for_origins_is_bounded() -> None:
    tree = make(eager=(B,), origins_max=2)
    for name in "xyz":
        tree.receive(B, Gossip(MessageId(NodeId(name), 1), 1, b""))
    assert list(tree.seen) == ["y", "z"]
