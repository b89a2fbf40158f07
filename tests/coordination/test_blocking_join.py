"""Use `oncecast.blocking.join`: groups, locks and queues without an event loop."""

from __future__ import annotations

import inspect

from oncecast import blocking
from oncecast.coordination import node


def test_blocking_join_has_the_same_options_as_join() -> None:
    options = inspect.signature(node.Node).parameters
    assert list(inspect.signature(blocking.join).parameters.values()) == list(options.values())


def test_process_without_an_event_loop_can_join_a_group() -> None:
    with blocking.join("127.0.0.1:0", peers=["127.0.0.1:1"], acceptors=["127.0.0.1:1"]) as member:
        assert member.me in member.group.view
