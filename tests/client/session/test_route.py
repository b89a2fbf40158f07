"""A client finds the leader: it follows redirects, waits, and asks other nodes."""

from __future__ import annotations

from random import Random

from oncecast.client.session.client import ClientSession
from oncecast.client.session.local import Do, Finished, NoAnswer
from oncecast.client.session.route import SILENCE, WAIT_HERE
from oncecast.kernel.protocol import NodeId, Send, Value, Watch
from oncecast.kernel.stack import Output, Stack
from oncecast.kernel.values import Wake
from oncecast.wire.commands import CreateTopic
from oncecast.wire.frames import Answer, Call, Elsewhere, GroupView, LookGroup
from oncecast.wire.results import Already

A, B, C = map(NodeId, "abc")
GROUP = ("a", "b", "c")
ASKED = Do(1, CreateTopic("t", 0), timeout=20.0)


class Seeker:
    """A session that knows three nodes and waits for an answer from the first."""

    def __init__(self) -> None:
        self.session = ClientSession(
            NodeId("client/me"), Random(3), node=A, others=(B, C), producer="p", incarnation="inc"
        )
        self.stack = Stack([self.session])
        self.now = 0.0
        self.outputs: list[Output] = []
        self._did(self.stack.start(0.0))
        self._did(self.stack.request(0.0, ASKED))

    def _did(self, outputs: list[Output]) -> None:
        self.outputs += outputs

    def hear(self, sender: NodeId, message: Value) -> None:
        self.outputs = [each for each in self.outputs if isinstance(each, Wake)]
        self._did(self.stack.receive(self.now, sender, message))

    def down(self, peer: NodeId) -> None:
        self._did(self.stack.down(self.now, peer))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [e for e in self.outputs if isinstance(e, Wake) and e.at <= until]:
            wake = min(due, key=lambda each: each.at)
            self.outputs.remove(wake)
            self.now = wake.at
            self._did(self.stack.wake(self.now, wake))
        self.now = until

    def asked(self, kind: type[Value]) -> list[NodeId]:
        """Return the nodes that got a message of this type since the last input."""
        sends = [each for each in self.outputs if isinstance(each, Send)]
        return [each.to for each in sends if isinstance(each.message, kind)]

    def report_leader(self, leader: str, sender: NodeId | None = None) -> None:
        self.hear(sender or self.session.entry.node, Elsewhere(leader, GROUP))

    def lose(self, node: NodeId) -> None:
        """Break the link to a node, and again after the client redials."""
        self.down(node)
        self.wait(0.05)
        self.report_leader(node)
        self.wait(0.5)
        assert self.session.entry.node == node
        self.down(node)
        self.wait(0.5)
        assert self.session.entry.node != node


def test_client_follows_a_redirect_to_the_leader_and_resends() -> None:
    """REP-3"""
    seeker = Seeker()
    seeker.report_leader("c")
    seeker.wait(0.1)
    assert seeker.session.entry.node == C
    assert seeker.asked(Call) == [C]
    assert Watch(C) in seeker.outputs


def test_node_that_dropped_its_link_twice_is_not_redialled_on_every_hint() -> None:
    seeker = Seeker()
    seeker.lose(A)
    here = seeker.session.entry.node
    for _ in range(5):
        seeker.report_leader("a")
        seeker.wait(0.01)
    assert seeker.session.entry.node == here


def test_client_waits_for_a_leader_and_follows_the_next_redirect() -> None:
    seeker = Seeker()
    seeker.lose(A)
    here = seeker.session.entry.node
    other = B if here == C else C
    seeker.report_leader("")
    seeker.wait(0.1)
    assert seeker.session.entry.node == here
    seeker.report_leader(other)
    seeker.wait(0.5)
    assert seeker.session.entry.node == other
    assert other in seeker.asked(Call)


def test_client_asks_again_when_its_node_becomes_the_leader() -> None:
    seeker = Seeker()
    seeker.lose(A)
    here = seeker.session.entry.node
    seeker.report_leader("")
    seeker.report_leader(here)
    seeker.wait(0.01)
    assert seeker.asked(Call) == [here]


def test_client_leaves_a_node_that_does_not_name_a_leader_in_time() -> None:
    seeker = Seeker()
    seeker.report_leader("")
    seeker.wait(2 * WAIT_HERE)
    assert seeker.session.entry.node == B


def test_busy_client_leaves_a_node_without_a_known_leader() -> None:
    """REP-3: each repeated call gets the same answer without a leader."""
    seeker = Seeker()
    for _ in range(10):
        if seeker.session.entry.node == A:
            seeker.report_leader("")
        seeker.wait(WAIT_HERE / 5)
    assert seeker.session.entry.node == B


def test_client_tries_a_third_node_if_two_nodes_do_not_know_a_leader() -> None:
    """REP-3: former members know an old membership and cannot lead."""
    seeker = Seeker()
    seeker.hear(A, Elsewhere("", ("b", "c")))
    seeker.wait(WAIT_HERE)
    assert seeker.session.entry.node == B
    seeker.hear(B, Elsewhere("", ("a", "c")))
    seeker.wait(WAIT_HERE)
    assert seeker.session.entry.node == C


def test_lost_node_is_tried_again_after_a_pause() -> None:
    """The link may break while the node still leads."""
    seeker = Seeker()
    seeker.lose(A)
    here = seeker.session.entry.node
    seeker.report_leader("a")
    seeker.wait(2 * WAIT_HERE)
    assert seeker.session.entry.node != here
    seeker.report_leader("a")
    seeker.wait(0.5)
    assert seeker.session.entry.node == A


def test_hint_from_an_earlier_node_is_ignored_while_the_current_node_answers() -> None:
    seeker = Seeker()
    seeker.report_leader("c")
    seeker.wait(0.1)
    seeker.hear(C, Answer(seeker.session.calls.new_id() - 1, Already(0, 0)))
    seeker.report_leader("b", sender=A)
    assert seeker.session.entry.node == C


def test_hanging_dial_is_abandoned_when_another_node_names_a_leader() -> None:
    seeker = Seeker()
    seeker.down(A)
    seeker.wait(0.05)
    seeker.report_leader("a")
    seeker.wait(0.5)
    assert seeker.session.entry.node == A
    seeker.report_leader("c", sender=B)
    assert seeker.session.entry.node == C


# A silent leader


def view(node: NodeId, leader: str) -> GroupView:
    return GroupView(0, node, leader, True, 1, 3, 0, (), ())


def test_silent_leader_is_kept_while_other_nodes_are_asked() -> None:
    seeker = Seeker()
    seeker.wait(1.0)
    assert seeker.session.entry.node == A
    assert set(seeker.asked(LookGroup)) == {B, C}


def test_no_other_node_is_asked_if_the_leader_answers_in_time() -> None:
    seeker = Seeker()
    id_ = seeker.session.calls.new_id() - 1
    seeker.hear(A, Answer(id_, Already(0, 0)))
    seeker.wait(20.0)
    assert seeker.asked(LookGroup) == []


def test_client_moves_to_the_leader_that_other_nodes_name() -> None:
    seeker = Seeker()
    seeker.wait(1.0)
    seeker.hear(B, view(B, "a"))
    assert seeker.session.entry.node == A
    seeker.hear(B, view(B, ""))
    assert seeker.session.entry.node == A
    seeker.hear(C, view(C, "b"))
    seeker.wait(0.1)
    assert seeker.session.entry.node == B
    assert seeker.asked(Call) == [B]


def test_other_nodes_are_asked_until_the_silent_node_answers() -> None:
    seeker = Seeker()
    seeker.wait(1.0)
    before = len(seeker.asked(LookGroup))
    seeker.wait(4 * SILENCE)
    assert len(seeker.asked(LookGroup)) >= before + 4
    seeker.hear(A, Answer(seeker.session.calls.new_id() - 1, Already(0, 0)))
    seeker.wait(20.0)
    assert seeker.asked(LookGroup) == []


# No leader


def test_timed_out_call_reports_whether_a_leader_is_known() -> None:
    for leader, led in (("", False), ("a", True)):
        seeker = Seeker()
        while seeker.now < 19.9:
            seeker.report_leader(leader)
            seeker.wait(0.1)
        seeker.outputs = [each for each in seeker.outputs if isinstance(each, Wake)]
        seeker.wait(0.5)
        events = [each.event for each in seeker.outputs if hasattr(each, "event")]
        assert events == [Finished(1, NoAnswer(20.0, led))]
