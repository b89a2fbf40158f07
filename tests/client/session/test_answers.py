"""A client session reports each answer exactly once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.client.session.client import ClientSession
from oncecast.client.session.local import Do, Finished, Group, Ring, Show, Shown
from oncecast.kernel.protocol import Emit, NodeId, Send
from oncecast.wire.commands import CreateTopic
from oncecast.wire.frames import (
    Answer,
    Call,
    GroupView,
    LeaveRing,
    Look,
    LookGroup,
    LookRing,
    RingView,
    View,
)
from oncecast.wire.results import TopicCreated

NODE = NodeId("node")
CREATE, CREATED = CreateTopic("t", 0), TopicCreated(1, False)


def create(id_: int) -> Call:
    return Call(id_, CreateTopic("t", 0, token=f"inc.{id_}"))


def view(id_: int) -> View:
    return View(id_, (), False, "node", "1.0")


def ring(id_: int) -> RingView:
    return RingView(id_, "node", (), (), None)


def group(id_: int) -> GroupView:
    return GroupView(id_, "node", "node", True, 1, 1, 9, (), ())


@pytest.mark.parametrize(
    ("request_", "question", "answer", "event"),
    [
        (Do(3, CREATE), create, lambda id_: Answer(id_, CREATED), Finished),
        (Show(3, "t"), lambda id_: Look(id_, "t"), view, Shown),
        (Ring(3, tree="t"), lambda id_: LookRing(id_, "t"), ring, Shown),
        (Ring(3, leave=True), LeaveRing, ring, Shown),
        (Group(3), LookGroup, group, Shown),
    ],
)
def test_answer_is_reported_once_without_waiting_for_a_record(
    request_: Any, question: Any, answer: Any, event: Any
) -> None:
    """SVC-3: the node answers only after it has stored the command."""
    session = ClientSession(
        NodeId("client/me"), Random(1), node=NODE, producer="p", incarnation="inc", durable=True
    )
    session.start()
    session.drain()
    session.request(request_)
    (asked,) = [each for each in session.drain() if isinstance(each, Send)]
    id_ = session.calls.new_id() - 1
    assert asked == Send(NODE, question(id_))
    reported = CREATED if event is Finished else answer(id_)
    for expected in ([Emit(event(3, reported))], []):
        session.receive(NODE, answer(id_))
        assert session.drain() == expected
