"""Test rules of the client session that involve several of its parts."""

from __future__ import annotations

import pytest

from oncecast.client.session.local import (
    Again,
    Do,
    Finished,
    Leave,
    Move,
    Produce,
    Read,
    Settle,
    Shown,
    Survey,
    Want,
)
from oncecast.client.session.records import Based, ClientState, Queued, Settled
from oncecast.kernel.protocol import NodeId, Send, Snapshot, Value, Watch
from oncecast.wire import commands as do
from oncecast.wire import errors, results
from oncecast.wire.frames import Answer, Call, LookGroup, Owned, Scan, Scanned
from tests.client.session.lone import NODE, Lone
from tests.client.session.test_client_producing import A, B
from tests.client.session.test_producing_exactly import next_process, putting
from tests.dice import HighDice

OTHER = NodeId("other")
LEADER = NodeId("third/g")
ASKED = Do(9, do.CreateTopic("t", 0))
GONE = errors.NotSubscribed("t", "s")


@pytest.mark.parametrize(
    ("request_", "reported"),
    [
        (Want("t", "s", 0, 0), []),
        (Again("t", "s", 0, 0), []),
        (Settle(3, "t", "s", 0, 0), [Finished(3, GONE)]),
        (Move(3, "t", "s", do.FromEarliest()), [Finished(3, GONE)]),
        (Leave(3, "t", "s", 0, 0), [Finished(3, GONE)]),
    ],
)
def test_requests_to_a_nonexistent_reader_are_refused(
    request_: Value, reported: list[Value]
) -> None:
    """SVC-7: no request waits forever."""
    lone = Lone().start().ask(request_)
    assert (lone.events, lone.sent) == (reported, [])


def test_scan_gets_an_id_from_the_session() -> None:
    """SVC-3"""
    lone = Lone().start().ask(Survey(3, Scan(0, "t", do.FromEarliest(), 5, 100, 7)))
    (scan,) = lone.sent
    id_ = lone.session.calls.new_id() - 1
    assert scan == Scan(id_, "t", do.FromEarliest(), 5, 100, 7)
    found = Scanned(id_, 7, 0, 5, 0, ())
    assert lone.hear(found).events == [Shown(3, found)]


def test_producer_awaits_an_answer_while_a_put_is_in_flight() -> None:
    """SVC-2: a node counts as silent only while an answer is missing."""
    lone = putting()
    session = lone.session
    assert session.owing() == {session.entry}
    assert session.topics_in_use() == {"t"}
    lone.answer(lone.call, results.Appended(0, 1, True))
    assert (session.owing(), session.topics_in_use()) == (set(), set())


def test_producer_awaits_no_answer_during_backoff_after_a_failed_open() -> None:
    lone = next_process(Queued("t", 0, 1, 0, A))
    session = lone.session
    assert session.owing() == {session.entry}
    lone.answer(lone.call, errors.TooMany("topics", 1))
    assert (session.owing(), session.topics_in_use()) == (set(), {"t"})


def test_topics_with_readers_or_requests_count_as_in_use() -> None:
    """SVC-9"""
    lone = Lone().start().ask(Read("t", "s"))
    lone.answer(lone.call, results.Attached(3, 5, 0, 9, 0, 1)).ask(Do(9, do.CreateTopic("u", 0)))
    assert lone.session.topics_in_use() == {"t", "u"}
    assert lone.session.owing() == {lone.session.entry}


@pytest.mark.parametrize("spoken", [False, True])
def test_other_nodes_are_asked_only_if_the_leader_is_silent(spoken: bool) -> None:
    """SVC-13: any message shows that the leader is alive."""
    lone = Lone(OTHER, rng=HighDice(1)).start().ask(ASKED)
    lone.wait(0.4)
    if spoken:
        lone.hear(Answer(0, results.Acked(0)))
    sent = lone.wait(0.4).addressed
    assert [(to, message) for to, message in sent if not isinstance(message, Call)] == (
        [] if spoken else [(OTHER, LookGroup(0))]
    )


def test_answers_from_unknown_nodes_are_accepted_only_outside_a_ring() -> None:
    """SVC-13: any node of a group may answer."""
    lone = Lone().start().ask(ASKED)
    done = results.TopicCreated(1, False)
    assert lone.answer(lone.call, done, OTHER).events == [Finished(9, done)]
    lone = Lone().start().ask(ASKED)
    lone.hear(Owned("t", "g", LEADER, (LEADER,))).wait(0.0)
    (call,) = lone.sent
    assert isinstance(call, Call)
    assert lone.answer(call, done, OTHER).outputs == []
    assert lone.hear(Owned("u", "h", OTHER, (OTHER,)), LEADER).outputs == []
    assert lone.answer(call, done, LEADER).events == [Finished(9, done)]


def test_new_link_is_watched_before_it_is_used() -> None:
    """SVC-13"""
    lone = Lone(rng=HighDice(1)).start().ask(ASKED)
    call = lone.call
    assert lone.down().outputs == [Watch(NODE), Send(NODE, call)]


# The outbox.


def snapshots(lone: Lone) -> list[Value]:
    return [each.state for each in lone.outputs if isinstance(each, Snapshot)]


def test_outbox_is_compacted_after_half_a_second_without_unsettled_batches() -> None:
    """SVC-12"""
    lone = putting(A, durable=True)
    lone.answer(lone.call, results.Appended(0, 1, True))
    call = lone.ask(Produce(2, "t", 2, B)).call
    assert snapshots(lone.wait(0.6)) == []
    lone.answer(call, results.Appended(1, 2, True))
    assert snapshots(lone.wait(0.39)) == []
    state = ClientState("p", "inc", (Based("t", 1, 0, 0), Settled("t", 3)))
    assert snapshots(lone.wait(0.02)) == [state]
    assert snapshots(lone.wait(30.0)) == []
