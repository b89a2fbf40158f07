"""Test the exact effects of each input to Mesh."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import Cancel, Effect, Emit, Later, NodeId, Send, Watch
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.overlay.mesh import Mesh
from oncecast.overlay.messages import Hello, Retry, Welcome

A, B, C, STRANGER = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("x")


class FixedDice(Random):
    def uniform(self, a: float, b: float) -> float:
        return 1.0


def make_mesh() -> Mesh:
    return Mesh(A, FixedDice(), peers=[A, B, C], retry_every=2.0)


def started() -> Mesh:
    mesh = make_mesh()
    mesh.start()
    mesh.drain()
    return mesh


def lose_link(mesh: Mesh, peer: NodeId) -> list[Effect]:
    del mesh.watched[peer]  # the stack does the same
    mesh.down(peer)
    return mesh.drain()


def test_start_watches_and_greets_every_other_peer() -> None:
    mesh = make_mesh()
    mesh.start()
    assert mesh.drain() == [
        Watch(B),
        Send(B, Hello()),
        Later(2.0, Retry(B)),
        Watch(C),
        Send(C, Hello()),
        Later(2.0, Retry(C)),
    ]


def test_hello_makes_its_sender_a_neighbour_and_is_welcomed() -> None:
    mesh = started()
    mesh.receive(B, Hello())
    assert mesh.drain() == [Cancel(Retry(B)), Emit(NeighborUp(B)), Send(B, Welcome())]


def test_welcome_makes_its_sender_a_neighbour() -> None:
    mesh = started()
    mesh.receive(B, Welcome())
    assert mesh.drain() == [Cancel(Retry(B)), Emit(NeighborUp(B))]


def test_second_hello_is_welcomed_again_without_a_second_event() -> None:
    mesh = started()
    mesh.receive(B, Hello())
    mesh.drain()
    mesh.receive(B, Hello())
    mesh.receive(B, Welcome())
    assert mesh.drain() == [Send(B, Welcome())]


def test_neighbour_with_a_broken_link_is_reported_down_and_greeted_again() -> None:
    mesh = started()
    mesh.receive(B, Hello())
    mesh.drain()
    assert lose_link(mesh, B) == [Emit(NeighborDown(B)), Later(2.0, Retry(B))]
    mesh.timeout(Retry(B))
    assert mesh.drain() == [Watch(B), Send(B, Hello()), Later(2.0, Retry(B))]


def test_peer_that_was_never_up_is_not_reported_down() -> None:
    mesh = started()
    assert lose_link(mesh, B) == [Later(2.0, Retry(B))]


def test_returning_peer_is_watched_before_it_is_reported_up() -> None:
    mesh = started()
    lose_link(mesh, B)
    mesh.receive(B, Hello())
    assert mesh.drain() == [
        Watch(B),
        Cancel(Retry(B)),
        Emit(NeighborUp(B)),
        Send(B, Welcome()),
    ]


def test_messages_from_unlisted_nodes_are_dropped_and_counted() -> None:
    mesh = started()
    mesh.receive(STRANGER, Hello())
    mesh.receive(STRANGER, Welcome())
    assert (mesh.drain(), mesh.dropped) == ([], 2)


def test_retry_delays_differ_between_nodes() -> None:
    delays = []
    for seed in range(5):
        mesh = Mesh(A, Random(seed), peers=[B], retry_every=2.0)
        mesh.start()
        delays += [effect.delay for effect in mesh.drain() if isinstance(effect, Later)]
    assert len(set(delays)) == 5
    assert all(1.5 <= delay <= 2.5 for delay in delays)
