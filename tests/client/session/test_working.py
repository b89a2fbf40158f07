"""Test the exact effects of a worker on a shared subscription (WRK)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.client.session.local import (
    NEVER,
    Confirm,
    Ended,
    Expired,
    Finished,
    Given,
    Handle,
    Join,
    Lost,
    NoAnswer,
    Part,
    Window,
)
from oncecast.client.session.settling import REASONS_MAX
from oncecast.client.session.working import ENDED, RETURNING_MAX
from oncecast.kernel.protocol import Emit, NodeId, Send
from oncecast.wire import errors
from oncecast.wire.frames import Call, Chunk, Elsewhere, Jobs, Owned, Work, WorkEnded
from oncecast.wire.results import Settled
from oncecast.wire.sharing import BY_BACKOFF, SETTLED_MAX, Settle
from tests.client.session.lone import NODE, Lone, chunk, packed
from tests.dice import HighDice

HERE = ("t", "s")
NAME = "inc.w1"
LEASE = 30 * 1_000_000


def working(window: int = 10) -> Lone:
    return Lone(rng=HighDice(1)).start().ask(Join(*HERE, window))


def jobs(
    token: int,
    *chunks: Chunk,
    previous: int = 0,
    part: int = 0,
    last: bool = True,
    deliveries: Iterable[int] = (),
    left: int = LEASE,
    worker: str = NAME,
) -> Jobs:
    counts = tuple(deliveries) or (1,) * len(chunks)
    return Jobs(*HERE, worker, previous, token, part, last, left, counts, chunks, LEASE)


def holding(*values: bytes, token: int = 7) -> Lone:
    """Return a session whose worker holds these messages, starting at offset 0."""
    return working().hear(jobs(token, chunk(0, *values)))


def settle(number: int, **verbs: Any) -> Settle:
    return Settle(*HERE, NAME, number, **verbs)


def settled(lone: Lone) -> Settle:
    command = lone.call.command
    assert isinstance(command, Settle)
    return command


def given(lone: Lone) -> list[tuple[int, int, bytes, int]]:
    """Return the token, offset, value and delivery count of each message in the last events."""
    return [
        (event.token, message.offset, message.value, count)
        for event in lone.events
        if isinstance(event, Given)
        for message, count in zip(event.messages, event.deliveries, strict=True)
    ]


def works(lone: Lone) -> list[Work]:
    return [each for each in lone.sent if isinstance(each, Work)]


# Messages.


def test_worker_asks_for_its_window() -> None:
    """WRK-6"""
    assert working(5).outputs == [Send(NODE, Work(*HERE, NAME, 5))]


def test_messages_arrive_with_their_token_and_delivery_count() -> None:
    """WRK-3"""
    lone = working().hear(jobs(7, chunk(3, b"a", b"b"), chunk(9, b"c"), deliveries=(1, 4)))
    assert given(lone) == [(7, 3, b"a", 1), (7, 4, b"b", 1), (7, 9, b"c", 4)]
    (event,) = lone.events
    assert isinstance(event, Given)
    assert [each.redelivered for each in event.messages] == [False, False, True]
    assert lone.sent == []


def test_message_with_a_known_token_is_a_duplicate() -> None:
    lone = holding(b"a").hear(jobs(7, chunk(0, b"a")))
    assert lone.outputs == []


def test_gap_in_the_tokens_triggers_a_single_request() -> None:
    lone = holding(b"a").hear(jobs(9, chunk(2, b"c"), previous=8))
    assert lone.outputs == [Send(NODE, Work(*HERE, NAME, 10, 7))]
    assert lone.hear(jobs(9, chunk(2, b"c"), previous=8)).outputs == []
    lone.hear(jobs(8, chunk(1, b"b"), previous=7))
    assert given(lone.hear(jobs(9, chunk(2, b"c"), previous=8))) == [(9, 2, b"c", 1)]


def test_each_gap_triggers_a_request() -> None:
    """WRK-1: a second lost frame would otherwise wait until the worker asks after a silence."""
    lone = holding(b"a").hear(jobs(9, chunk(2, b"c"), previous=8))
    assert works(lone) == [Work(*HERE, NAME, 10, 7)]
    lone.hear(jobs(8, chunk(1, b"b"), previous=7))
    lone.hear(jobs(9, chunk(2, b"c"), previous=8))
    assert works(lone.hear(jobs(11, chunk(4, b"e"), previous=10))) == [Work(*HERE, NAME, 10, 9)]


def test_parts_with_one_token_arrive_in_order() -> None:
    lone = working().hear(jobs(7, chunk(0, b"a"), last=False))
    assert given(lone) == [(7, 0, b"a", 1)]
    assert lone.hear(jobs(7, chunk(2, b"c"), part=2)).outputs == [Send(NODE, Work(*HERE, NAME, 10))]
    assert given(lone.hear(jobs(7, chunk(1, b"b"), part=1))) == [(7, 1, b"b", 1)]
    assert lone.down().sent[-1] == Work(*HERE, NAME, 10, 7)


def test_resent_parts_deliver_only_missing_messages() -> None:
    lone = working().hear(jobs(7, chunk(0, b"a"), last=False))
    assert given(lone.hear(jobs(7, chunk(0, b"a", b"b")))) == [(7, 1, b"b", 1)]


def test_part_with_an_unknown_token_counts_as_a_gap() -> None:
    lone = working().hear(jobs(7, chunk(1, b"b"), part=1))
    assert lone.outputs == [Send(NODE, Work(*HERE, NAME, 10))]


def test_token_without_messages_counts_as_received() -> None:
    lone = working().hear(jobs(7))
    assert lone.outputs == []
    assert lone.down().sent == [Work(*HERE, NAME, 10, 7)]


def test_messages_of_an_ended_worker_are_returned() -> None:
    """WRK-1: a late request has revived the worker. The node would lease messages to it forever."""
    lone = working().hear(WorkEnded(*HERE, NAME, errors.Denied())).ask(Join(*HERE, 10))
    late = jobs(7, chunk(0, b"a", b"b"), chunk(5, b"f"))
    call = lone.hear(late).call
    runs = ((7, 0, 2), (7, 5, 1))
    assert call.command == settle(ENDED + 7, unused=runs, leave=True)
    assert lone.hear(late).outputs == []  # the call is in flight
    assert lone.answer(call, Settled(0)).outputs == []
    again = lone.hear(jobs(8, chunk(0, b"a"))).call
    assert again.command == settle(ENDED + 8, unused=((8, 0, 1),), leave=True)


def test_messages_of_a_worker_of_an_earlier_process_are_returned() -> None:
    """WRK-1: the earlier process has sent a request that arrived after its end."""
    call = working().hear(jobs(7, chunk(0, b"a"), worker="earlier.w1")).call
    assert call.command == replace(
        settle(ENDED + 7, unused=((7, 0, 1),), leave=True), worker="earlier.w1"
    )


def test_messages_of_many_ended_workers_are_dropped() -> None:
    lone = working()
    for number in range(RETURNING_MAX):
        assert lone.hear(jobs(7, chunk(0, b"a"), worker=f"earlier.w{number}")).outputs
    assert lone.hear(jobs(7, chunk(0, b"a"), worker="earlier.last")).outputs == []


def test_malformed_messages_of_an_ended_worker_are_dropped() -> None:
    lone = working().hear(WorkEnded(*HERE, NAME, errors.Denied()))
    for offset, count in ((-1, 1), (0, 0), (0, SETTLED_MAX + 1)):
        broken = Chunk(offset, 0, count, "p", 0, packed(b"a"))
        assert lone.hear(jobs(7, broken)).outputs == []


def test_worker_asks_again_after_a_lost_link_a_redirect_and_silence() -> None:
    lone = holding(b"a")
    again = Work(*HERE, NAME, 10, 7)
    assert lone.down().sent == [again]
    other = NodeId("other")
    lone.hear(Elsewhere(other, (other,))).wait(0.1)
    assert lone.addressed == [(other, again)]
    assert Lone(rng=HighDice(1)).start().ask(Join(*HERE, 1)).wait(0.5).sent == [
        Work(*HERE, NAME, 1)
    ]


def test_unreadable_batch_is_returned_to_the_node() -> None:
    """WRK-2: after its last delivery, the message becomes a dead letter."""
    broken = Chunk(4, 0, 2, "p", 4, b"broken")
    lone = working().hear(jobs(7, chunk(0, b"a"), broken))
    assert given(lone) == [(7, 0, b"a", 1)]
    ((token, first, count, delay, reason),) = settled(lone).release
    assert (token, first, count, delay) == (7, 4, 2, BY_BACKOFF)
    assert reason.startswith("the worker cannot read the message: ")


def test_batch_with_too_few_messages_is_returned_to_the_node() -> None:
    lone = working().hear(jobs(7, Chunk(0, 0, 3, "p", 0, packed(b"a"))))
    assert lone.events == []
    assert settled(lone).release[0][:3] == (7, 0, 3)


def test_window_can_change() -> None:
    assert holding(b"a").ask(Window(*HERE, 0)).outputs == [Send(NODE, Work(*HERE, NAME, 0, 7))]


# Settlements.


def test_settlements_from_one_request_share_a_call() -> None:
    """WRK-2"""
    lone = holding(b"a", b"b", b"c", b"d", b"e", b"f")
    lone.ask(
        Handle(
            *HERE,
            accept=((7, 1), (7, 0)),
            release=((7, 2, 5, "x"), (7, 3, 5, "x")),
            reject=((7, 4, "no"),),
            unused=((7, 5),),
        )
    )
    assert settled(lone) == settle(
        1,
        accept=((7, 0, 2),),
        release=((7, 2, 2, 5, "x"),),
        reject=((7, 4, 1, "no"),),
        unused=((7, 5, 1),),
    )


def test_one_settlement_is_in_flight_at_a_time() -> None:
    """WRK-3: the node keeps only the last result."""
    lone = holding(b"a", b"b", b"c").ask(Handle(*HERE, accept=((7, 0),)))
    first = lone.call
    assert lone.ask(Handle(*HERE, accept=((7, 1),))).outputs == []
    assert lone.ask(Handle(*HERE, accept=((7, 2),))).outputs == []
    lone.answer(first, Settled(1))
    assert settled(lone) == settle(2, accept=((7, 1, 2),))


def test_settlement_is_repeated_unchanged() -> None:
    lone = holding(b"a").ask(Handle(*HERE, accept=((7, 0),)))
    first = lone.call
    lone.down()
    assert lone.sent == [first, Work(*HERE, NAME, 10, 7)]


def test_only_stale_offsets_are_reported() -> None:
    """WRK-3"""
    lone = holding(b"a", b"b", b"c").ask(Handle(*HERE, accept=((7, 0), (7, 1), (7, 2))))
    lone.answer(lone.call, Settled(0, ((7, 1, 1),)))
    assert lone.outputs == [Emit(Lost(*HERE, ((7, 1),)))]


def test_returned_offset_is_not_reported_as_stale() -> None:
    lone = holding(b"a").ask(Handle(*HERE, unused=((7, 0),)))
    assert lone.answer(lone.call, Settled(0, ((7, 0, 1),))).outputs == []


def test_second_settlement_or_foreign_token_reports_a_lost_lease() -> None:
    lone = holding(b"a").ask(Handle(*HERE, accept=((6, 0),)))
    assert lone.outputs == [Emit(Lost(*HERE, ((6, 0),)))]
    lone.ask(Handle(*HERE, accept=((7, 0),)))
    assert lone.ask(Handle(*HERE, accept=((7, 0),))).events == [Lost(*HERE, ((7, 0),))]


def test_confirm_waits_only_for_earlier_settlements() -> None:
    lone = holding(b"a", b"b")
    assert lone.ask(Confirm(1, *HERE)).events == [Finished(1, Settled(0))]
    first = lone.ask(Handle(*HERE, accept=((7, 0),))).call
    assert lone.ask(Confirm(2, *HERE)).events == []
    lone.ask(Handle(*HERE, accept=((7, 1),)))
    assert lone.ask(Confirm(3, *HERE)).events == []
    assert lone.answer(first, Settled(1)).events == [Finished(2, Settled(1))]
    assert lone.answer(lone.call, Settled(2)).events == [Finished(3, Settled(2))]


def test_many_settlements_are_split() -> None:
    lone = working(100_000)
    values = [b"v"] * (SETTLED_MAX + 5)
    lone.hear(jobs(7, chunk(0, *values)))
    lone.ask(Handle(*HERE, accept=tuple((7, each) for each in range(len(values)))))
    assert settled(lone) == settle(1, accept=((7, 0, SETTLED_MAX),))
    lone.answer(lone.call, Settled(SETTLED_MAX))
    assert settled(lone) == settle(2, accept=((7, SETTLED_MAX, 5),))


def test_total_length_of_reasons_in_a_call_is_limited() -> None:
    lone = working(1000)
    count = 3 * REASONS_MAX
    lone.hear(jobs(7, chunk(0, *[b"v"] * count)))
    lone.ask(Handle(*HERE, release=tuple((7, n, 0, f"{n:04}" * 250) for n in range(count))))
    calls = 0
    while any(isinstance(each, Call) for each in lone.sent):
        assert settled(lone).fault == ""
        calls += 1
        lone.answer(lone.call, Settled(0))
    assert calls == 3


# Renewal.


def test_leases_are_renewed_in_time() -> None:
    """WRK-2"""
    lone = holding(b"a", b"b", b"c").ask(Handle(*HERE, accept=((7, 1),)))
    lone.answer(lone.call, Settled(0))
    calls = [each for each in lone.wait(9.9).sent if isinstance(each, Call)]
    assert calls == []
    (call,) = [each for each in lone.wait(0.2).sent if isinstance(each, Call)]
    assert call.command == settle(2, renew=((7, 0, 1), (7, 2, 1)))
    lone.answer(call, Settled(0))
    lone.wait(9.8)
    (again,) = [each for each in lone.wait(0.2).sent if isinstance(each, Call)]
    assert again.command == settle(3, renew=((7, 0, 1), (7, 2, 1)))


def test_settled_message_is_not_renewed() -> None:
    lone = holding(b"a", b"b").ask(Handle(*HERE, accept=((7, 0),)))
    first = lone.call
    lone.wait(0.2).hear(jobs(8, chunk(2, b"c"), previous=7, left=300_000))
    lone.wait(0.15)
    lone.ask(Handle(*HERE, accept=((8, 2),)))
    assert settled(lone.answer(first, Settled(1))) == settle(2, accept=((8, 2, 1),))


def test_refused_renewal_reports_a_lost_lease() -> None:
    lone = holding(b"a", b"b").wait(10.1)
    (call,) = [each for each in lone.sent if isinstance(each, Call)]
    lone.answer(call, Settled(0, ((7, 0, 1),)))
    assert lone.events == [Lost(*HERE, ((7, 0),))]
    assert lone.ask(Handle(*HERE, accept=((7, 0),))).outputs == [Emit(Lost(*HERE, ((7, 0),)))]


def test_lease_that_cannot_be_renewed_expires_once() -> None:
    """WRK-1: the application must not start a message that another worker may have got."""
    lone = holding(b"a").wait(29.9)
    assert lone.events == []
    assert lone.wait(30.0).events == [Expired(*HERE, ((7, 0),))]


def test_lease_with_little_time_left_is_renewed_for_the_whole_lease() -> None:
    lone = working().hear(jobs(7, chunk(0, b"a"), left=1000)).wait(0.06)
    (call,) = [each for each in lone.sent if isinstance(each, Call)]
    lone.answer(call, Settled(0))
    assert [each for each in lone.wait(9.8).sent if isinstance(each, Call)] == []


# The end.


def test_leaving_worker_settles_first_and_gets_no_more_messages() -> None:
    """WRK-6"""
    lone = holding(b"a", b"b").ask(Handle(*HERE, accept=((7, 0),)))
    first = lone.call
    lone.ask(Handle(*HERE, unused=((7, 1),)))
    assert lone.ask(Part(5, *HERE, 30.0)).outputs == []
    assert lone.hear(jobs(8, chunk(2, b"c"), previous=7)).outputs == []
    lone.answer(first, Settled(1))
    assert settled(lone) == settle(2, unused=((7, 1, 1),), leave=True)
    lone.answer(lone.call, Settled(1))
    assert lone.outputs == [Emit(Finished(5, Settled(1)))]
    gone = Finished(6, errors.NotSubscribed(*HERE))
    assert lone.ask(Confirm(6, *HERE)).events == [gone]


def test_leaving_worker_sends_all_settlements_before_it_leaves() -> None:
    """WRK-6: the node forgets the worker's leases when it leaves."""
    lone = working(100_000)
    values = [b"v"] * (SETTLED_MAX + 5)
    lone.hear(jobs(7, chunk(0, *values)))
    lone.ask(Handle(*HERE, accept=((7, 0),)))
    first = lone.call
    lone.ask(Handle(*HERE, accept=tuple((7, each) for each in range(1, len(values)))))
    lone.ask(Part(5, *HERE, 30.0))
    assert settled(lone.answer(first, Settled(1))) == settle(2, accept=((7, 1, SETTLED_MAX),))
    lone.answer(lone.call, Settled(SETTLED_MAX + 1))
    last = settle(3, accept=((7, SETTLED_MAX + 1, 4),), leave=True)
    assert settled(lone) == last
    assert lone.answer(lone.call, Settled(len(values))).events == [
        Finished(5, Settled(len(values)))
    ]


def test_renewed_lease_counts_from_the_first_request() -> None:
    """WRK-1: the node may have renewed the lease when it got the first copy of the call."""
    lone = holding(b"a").wait(10.1)
    (call,) = [each for each in lone.sent if isinstance(each, Call)]
    lone.wait(15.0).answer(call, Settled(0))
    assert lone.wait(14.8).events == []
    assert lone.wait(0.3).events == [Expired(*HERE, ((7, 0),))]


def test_window_is_kept_after_a_lost_link() -> None:
    """WRK-6: a draining worker would get messages again."""
    lone = holding(b"a").ask(Window(*HERE, 0))
    assert lone.down().sent == [Work(*HERE, NAME, 0, 7)]


def test_next_worker_has_another_name() -> None:
    lone = holding(b"a").ask(Part(5, *HERE, 30.0))
    lone.answer(lone.call, Settled(0))
    assert lone.ask(Join(*HERE, 3)).sent == [Work(*HERE, "inc.w2", 3)]


def test_worker_can_leave_without_an_answer() -> None:
    lone = holding(b"a").ask(Confirm(4, *HERE)).ask(Handle(*HERE, accept=((7, 0),)))
    lone.ask(Confirm(4, *HERE)).ask(Part(5, *HERE, 3.0))
    late = NoAnswer(3.0)
    assert lone.wait(3.1).events == [Finished(4, late), Finished(5, late)]


@pytest.mark.parametrize(
    "why", [errors.NotSubscribed(*HERE), errors.WrongKind(*HERE, "exclusive"), errors.Denied()]
)
def test_refusal_ends_the_worker(why: errors.AnyRefusal) -> None:
    lone = working().hear(WorkEnded(*HERE, NAME, why))
    assert lone.outputs == [Emit(Ended(*HERE, why))]
    assert lone.hear(jobs(7, chunk(0, b"a"))).events == []
    lone = holding(b"a").ask(Handle(*HERE, accept=((7, 0),)))
    call = lone.call
    lone.ask(Confirm(1, *HERE))
    lone.answer(call, why)
    assert lone.events == [Finished(1, why), Ended(*HERE, why)]


def test_outcome_of_a_settlement_with_a_denied_copy_is_unknown() -> None:
    """SVC-7: the node may have executed the first copy."""
    lone = holding(b"a").ask(Handle(*HERE, accept=((7, 0),))).ask(Confirm(1, *HERE))
    lone.ask(Part(5, *HERE, 30.0)).wait(1.0)
    again = [each for each in lone.sent if isinstance(each, Call)]
    unknown = NoAnswer(NEVER, denied=True)
    assert lone.answer(again[0], errors.Denied()).events == [
        Finished(1, unknown),
        Finished(5, unknown),
        Ended(*HERE, errors.Denied()),
    ]


def test_outcome_of_a_settlement_in_flight_is_unknown_if_its_worker_is_denied() -> None:
    """SVC-7"""
    lone = holding(b"a").ask(Handle(*HERE, accept=((7, 0),))).ask(Confirm(1, *HERE))
    assert lone.hear(WorkEnded(*HERE, NAME, errors.Denied())).events == [
        Finished(1, NoAnswer(NEVER, denied=True)),
        Ended(*HERE, errors.Denied()),
    ]


def test_refusal_for_another_worker_is_ignored() -> None:
    assert working().hear(WorkEnded(*HERE, "old", errors.Denied())).outputs == []


def test_worker_asks_a_busy_node_again() -> None:
    busy = WorkEnded(*HERE, NAME, errors.Overloaded("calls"))
    assert working().hear(busy).wait(0.6).sent == [Work(*HERE, NAME, 10)]


def test_worker_follows_a_topic_that_moves() -> None:
    """WRK-1"""
    lone = working()
    lone.hear(Owned("t", "g", "leader/g", ("leader/g",))).wait(0.1)
    leader = NodeId("leader/g")
    assert (leader, Work(*HERE, NAME, 10)) in lone.addressed
    lone.hear(WorkEnded(*HERE, NAME, errors.NotHere("t")), leader).wait(0.5)
    assert (NODE, Work(*HERE, NAME, 10)) in lone.addressed
