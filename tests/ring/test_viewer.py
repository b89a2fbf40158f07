"""The viewer: whoever asks a process for what it is not is told so. SVC-7"""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from oncecast.kernel.protocol import NodeId, Send
from oncecast.pubsub.errors import InvalidArgument
from oncecast.replication.events import HandOver
from oncecast.ring.viewer import Viewer
from oncecast.session.frames import Answer, Govern, LookGroup

ME, ANN = NodeId("me:1"), NodeId("client/ann")


@pytest.mark.parametrize("question", [LookGroup(7), Govern(7, HandOver(ME))])
def test_a_process_of_a_ring_is_no_replica_of_one_group(question: Any) -> None:
    nothing = cast("Any", None)
    viewer = Viewer(ME, Random(1), roster=nothing, scribe=nothing, relay=nothing)
    viewer.receive(ANN, question)
    fact = "me:1 is a process of a ring, and no replica of one group; ask one of its replicas"
    assert viewer.drain() == [Send(ANN, Answer(7, InvalidArgument(fact)))]
