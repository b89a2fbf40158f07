"""The gateway sends decided messages to permitted readers, in order and within their credit."""

from __future__ import annotations

import pytest

from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.frames import Call, Chunk, Delivery, Fetch, FlowEnded
from oncecast.wire.retention import Policy
from tests.broker.desk import (
    ANN,
    BOB,
    Desk,
    fetch,
    packed,
    producing,
    put,
    reading,
    values,
)

LETTERS = [bytes([each]) for each in b"abcdefghij"]


def filled(count: int = 10, **options: object) -> tuple[Desk, int]:
    """Return a node with one batch per letter, and the epoch of its reader."""
    desk = Desk(**options)  # type: ignore[arg-type]
    epoch = reading(desk)
    producer = producing(desk)
    for sequence, letter in enumerate(LETTERS[:count]):
        desk.call(BOB, put(producer, sequence, letter))
    return desk, epoch


def test_stored_messages_are_delivered_with_their_producer() -> None:
    """SVC-3"""
    desk, epoch = filled(2)
    assert desk.send(ANN, fetch(epoch, 1)) == [
        Delivery(
            "topic",
            "sub",
            epoch,
            (Chunk(1, 0, 1, "p", 1, packed(b"b")),),
            suspect_below=0,
            next=2,
        )
    ]


def test_waiting_reader_gets_a_message_once_it_is_decided() -> None:
    """SVC-4"""
    desk = Desk()
    epoch = reading(desk)
    assert desk.send(ANN, fetch(epoch, 0)) == []
    producer = producing(desk)
    desk.waiting = True
    desk.send(BOB, Call(1, put(producer, 0, b"a")))
    assert desk.took(ANN) == [], "not before it is on disk"
    desk.sync()
    assert values(desk.took(ANN)) == [b"a"]
    desk.took(BOB)
    desk.call(BOB, put(producer, 1, b"b", b"c"))
    assert values(desk.took(ANN)) == [b"b", b"c"]


def test_messages_decided_together_are_delivered_together() -> None:
    desk = Desk()
    epoch = reading(desk)
    desk.send(ANN, fetch(epoch, 0))
    producer = producing(desk)
    desk.waiting = True
    for sequence in range(3):
        desk.send(BOB, Call(sequence, put(producer, sequence, b"x")))
    desk.sync()
    (delivery,) = desk.took(ANN)
    assert isinstance(delivery, Delivery)
    assert len(delivery.chunks) == 3


def test_deliveries_stay_within_the_credit() -> None:
    desk, epoch = filled()
    assert values(desk.send(ANN, fetch(epoch, 0, messages=3))) == LETTERS[:3]
    assert values(desk.send(ANN, fetch(epoch, 3, messages=2))) == LETTERS[3:5]
    assert desk.send(ANN, fetch(epoch, 5, messages=0)) == []
    size = len(packed(b"a"))
    assert values(desk.send(ANN, fetch(epoch, 5, size=2 * size))) == LETTERS[5:7]
    assert values(desk.send(ANN, fetch(epoch, 7, size=1))) == LETTERS[7:8], (
        "one batch, whatever its size"
    )


def test_small_credit_delivers_part_of_a_batch() -> None:
    desk = Desk()
    epoch = reading(desk)
    desk.call(BOB, put(producing(desk), 0, *LETTERS))
    assert values(desk.send(ANN, fetch(epoch, 4, messages=3))) == LETTERS[4:7]


def test_batch_that_exceeds_the_remaining_credit_is_sent_with_the_next_fetch() -> None:
    desk = Desk()
    epoch = reading(desk)
    producer = producing(desk)
    for sequence in (0, 3, 6):
        desk.call(BOB, put(producer, sequence, *LETTERS[sequence : sequence + 3]))
    assert values(desk.send(ANN, fetch(epoch, 0, messages=5))) == LETTERS[:3], (
        "a credit of 2 is left"
    )
    assert values(desk.send(ANN, fetch(epoch, 3, messages=6))) == LETTERS[3:9]


def test_batch_is_split_to_use_more_than_half_of_the_credit() -> None:
    """A reader that got less might not send another Fetch."""
    desk = Desk()
    epoch = reading(desk)
    producer = producing(desk)
    for sequence in (0, 3):
        desk.call(BOB, put(producer, sequence, *LETTERS[sequence : sequence + 3]))
    assert values(desk.send(ANN, fetch(epoch, 2, messages=3))) == LETTERS[2:5]


def test_reader_gets_the_rest_of_a_partly_dropped_batch() -> None:
    """No message in flight would trigger another Fetch, and no message may be skipped."""
    desk = Desk()
    epoch = reading(desk)
    producer = producing(desk)
    for sequence in (0, 3):
        desk.call(BOB, put(producer, sequence, *LETTERS[sequence : sequence + 3]))
    assert values(desk.send(ANN, fetch(epoch, 0, messages=3))) == LETTERS[:3]
    desk.send(ANN, fetch(epoch, 3, ack=3, messages=1))
    desk.pass_time(1.0)
    assert desk.service.machine.bounds("topic") == (3, 6)
    assert values(desk.send(ANN, fetch(epoch, 0, ack=3, messages=2))) == LETTERS[3:5]


def test_renewing_credit_does_not_resend_messages_in_flight() -> None:
    desk, epoch = filled()
    assert values(desk.send(ANN, fetch(epoch, 0, messages=6))) == LETTERS[:6]
    assert values(desk.send(ANN, fetch(epoch, 4, messages=6))) == LETTERS[6:10]


@pytest.mark.parametrize("offset", [4, 2])
def test_fetch_at_the_same_or_an_earlier_offset_resends_messages(offset: int) -> None:
    """SVC-3: a lost message is resent unchanged."""
    desk, epoch = filled()
    desk.send(ANN, fetch(epoch, 4, messages=3))
    assert values(desk.send(ANN, fetch(epoch, offset, messages=2))) == LETTERS[offset : offset + 2]


def test_deliveries_have_a_bounded_size() -> None:
    size = len(packed(b"a"))
    desk, epoch = filled(gateway={"delivery_bytes": 3 * size})
    deliveries = desk.send(ANN, fetch(epoch, 0))
    assert values(deliveries) == LETTERS
    counts = [len(each.chunks) for each in deliveries if isinstance(each, Delivery)]
    assert counts == [3, 3, 3, 1]


def test_slow_client_does_not_delay_other_clients() -> None:
    size = len(packed(b"a"))
    desk, epoch = filled(gateway={"window_bytes": 4 * size})
    other = reading(desk, ANN, "other")
    producer = producing(desk, BOB, "other")
    assert values(desk.send(ANN, fetch(epoch, 0))) == LETTERS[:4]
    desk.call(BOB, put(producer, 0, b"x", topic="other"))
    assert desk.send(ANN, fetch(other, 0, topic="other")) == [], "the window of the client is full"
    desk.call(BOB, do.Subscribe("topic", "bob", do.FromEarliest(), 0))
    desk.call(BOB, do.Seek("topic", "bob", do.FromEarliest(), 0, "t"))
    bob = desk.call(BOB, do.Attach("topic", "bob", "inc-1")).epoch
    assert values(desk.send(BOB, Fetch("topic", "bob", bob, 0, 0, 4, 1 << 20))) == LETTERS[:4]
    got = desk.send(ANN, fetch(epoch, 3))
    topics = [each.topic for each in got if isinstance(each, Delivery)]
    assert topics == ["topic"], "one batch fits again"
    got = desk.send(ANN, fetch(epoch, 5))
    assert "other" in [each.topic for each in got if isinstance(each, Delivery)]


def test_acks_in_several_fetches_share_one_slot() -> None:
    """SVC-9: acknowledged messages are dropped."""
    desk, epoch = filled()
    last = desk.journal.log.last
    for offset in range(1, 8):
        desk.send(ANN, fetch(epoch, offset, ack=offset))
    assert desk.service.machine.bounds("topic") == (0, 10)
    desk.pass_time(0.01)
    assert desk.service.machine.bounds("topic") == (7, 10)
    assert desk.journal.log.last == last + 1


def test_repeated_or_invalid_ack_is_not_written() -> None:
    desk, epoch = filled()
    last = desk.journal.log.last
    desk.send(ANN, fetch(epoch, 0, ack=0))
    desk.send(ANN, fetch(epoch, 0, ack=11))
    desk.pass_time(0.01)
    assert desk.journal.log.last == last


def test_many_acks_are_flushed_without_delay() -> None:
    desk = Desk(service={"acks_max": 2})
    epochs = [reading(desk, ANN, topic) for topic in ("one", "two")]
    for topic, epoch in zip(("one", "two"), epochs, strict=True):
        producer = producing(desk, BOB, topic)
        desk.call(BOB, put(producer, 0, b"x", topic=topic))
        desk.send(ANN, fetch(epoch, 1, ack=1, topic=topic))
    assert [desk.service.machine.bounds(topic) for topic in ("one", "two")] == [(1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (do.Attach("topic", "sub", "inc-2"), errors.Fenced),
        (do.Seek("topic", "sub", do.FromEarliest(), 0, "token"), errors.Repositioned),
        (do.Unsubscribe("topic", "sub", 0), errors.NotSubscribed),
        (do.DeleteTopic("topic", 0), errors.NoSuchTopic),
    ],
)
def test_ended_flow_reports_its_epoch_and_the_reason(
    command: do.Command, why: type[errors.Refusal]
) -> None:
    """SVC-8: a newer reader takes over, and the older reader gets a clear error."""
    desk, epoch = filled(3)
    desk.send(ANN, fetch(epoch, 0))
    desk.call(BOB, command)
    (ended,) = desk.took(ANN)
    assert isinstance(ended, FlowEnded)
    assert (ended.epoch, type(ended.why)) == (epoch, why)
    assert len(desk.gateway.flows) == 0
    (ended,) = desk.send(ANN, fetch(epoch, 0))
    assert isinstance(ended, FlowEnded)
    assert type(ended.why) is why


def test_reader_with_an_old_epoch_gets_no_deliveries() -> None:
    desk, old = filled(3)
    new = desk.call(ANN, do.Attach("topic", "sub", "inc-2")).epoch
    (ended,) = desk.send(ANN, fetch(old, 0, ack=3))
    assert ended == FlowEnded("topic", "sub", old, errors.Fenced(new))
    desk.pass_time(1.0)
    assert desk.service.machine.bounds("topic") == (0, 3), "its ack is ignored"
    (delivery,) = desk.send(ANN, fetch(new, 0))
    assert isinstance(delivery, Delivery)
    assert delivery.suspect_below == 3, "the older reader may have received these"


def test_detached_reader_gets_no_deliveries() -> None:
    desk, epoch = filled(3)
    desk.call(ANN, do.Detach("topic", "sub", epoch, 0))
    (ended,) = desk.send(ANN, fetch(epoch, 0))
    assert ended == FlowEnded("topic", "sub", epoch, errors.Fenced(epoch))


def test_newer_reader_connection_takes_over_the_flow() -> None:
    desk, epoch = filled(3)
    desk.send(ANN, fetch(epoch, 0))
    assert values(desk.send(BOB, fetch(epoch, 2))) == LETTERS[2:3]
    assert desk.took(ANN) == [FlowEnded("topic", "sub", epoch, errors.Fenced(epoch))]


@pytest.mark.parametrize("offset", [-1, 4])
def test_fetching_an_offset_out_of_range_ends_the_flow(offset: int) -> None:
    desk, epoch = filled(3)
    (ended,) = desk.send(ANN, fetch(epoch, offset))
    assert ended == FlowEnded("topic", "sub", epoch, errors.OutOfRange(3))


def test_disconnected_client_loses_only_its_flows() -> None:
    """SVC-4, SVC-11: a reconnected client continues at its cursor."""
    desk, epoch = filled(3)
    desk.send(ANN, fetch(epoch, 0, messages=1))
    desk.leave(ANN)
    assert len(desk.gateway.flows) == 0
    assert values(desk.send(ANN, fetch(epoch, 1))) == LETTERS[1:3]


def test_credit_counts_uncompressed_bytes() -> None:
    """SVC-4: compressed batches must not fill the memory of the reader."""
    desk = Desk()
    epoch, producer = reading(desk), producing(desk)
    large = batch.encode([bytes(1_000_000)], timestamps=1, zstd=3)
    assert len(large) < 1000
    for sequence in range(9):
        desk.call(BOB, do.Put("topic", "p", producer, sequence, 1, len(large), 0, large))
    got = desk.send(ANN, Fetch("topic", "sub", epoch, 0, 0, 100, 2_500_000))
    assert [len(value) for value in values(got)] == [1_000_000] * 3


def test_restarted_node_reads_messages_from_disk() -> None:
    desk, epoch = filled()
    desk.restart()
    assert values(desk.send(ANN, fetch(epoch, 0))) == LETTERS


def test_reader_continues_after_dropped_unread_messages() -> None:
    desk, epoch = filled()
    policy = Policy(bytes_max=2 * len(packed(b"a")), drop_unread=True)
    desk.call(BOB, do.SetPolicy("topic", 0, policy))
    (delivery,) = desk.send(ANN, fetch(epoch, 0))
    assert isinstance(delivery, Delivery)
    assert delivery.chunks[0].offset == 8


def test_losing_all_unread_messages_is_reported_again_on_request() -> None:
    """SVC-4 SVC-9: otherwise the reader would wait forever."""
    desk, epoch = filled(3)
    assert len(values(desk.send(ANN, fetch(epoch, 0, messages=1)))) == 1
    policy = Policy(bytes_max=1, drop_unread=True)
    desk.call(ANN, do.SetPolicy("topic", 0, policy))
    gone = Delivery("topic", "sub", epoch, (), suspect_below=0, next=3)
    assert desk.send(ANN, fetch(epoch, 1)) == [gone]
    assert desk.send(ANN, fetch(epoch, 3)) == []
    assert desk.send(ANN, fetch(epoch, 1)) == [gone]


def test_staged_messages_get_their_sequence_when_published() -> None:
    desk = Desk()
    epoch = reading(desk)
    desk.send(ANN, fetch(epoch, 0))
    for part, letter in (("y", b"b"), ("x", b"a")):
        data = packed(letter)
        desk.call(BOB, do.Stage("source", 0, part, "topic", 1, len(data), 0, data))
    assert desk.took(ANN) == []
    desk.call(BOB, do.PublishStaged("source", 0, ("x", "y"), 0))
    got = desk.took(ANN)
    assert values(got) == [b"a", b"b"]
    chunks = [chunk for each in got if isinstance(each, Delivery) for chunk in each.chunks]
    assert [(each.producer, each.sequence) for each in chunks] == [("source", 0), ("source", 1)]


def test_unreadable_batch_ends_the_flow_but_not_the_node() -> None:
    """SVC-10: no other replica has the batch, so the reader gets an error with the offset."""
    desk = Desk(service={"recent_bytes": 0})
    epoch, producer = reading(desk), producing(desk)
    desk.call(BOB, put(producer, 0, b"first" * 1000))
    file = desk.disk.open("00000001.log")
    desk.disk.lose("00000001.log", file.read(0, file.size()).index(b"first" * 1000) + 2000)
    (ended,) = desk.send(ANN, fetch(epoch, 0))
    assert isinstance(ended, FlowEnded)
    assert isinstance(ended.why, errors.BadBatch)
    assert "offset 0 of topic 'topic' is lost: 00000001.log" in ended.why.fact
    assert desk.call(BOB, put(producer, 1, b"second")).offset == 1
    assert values(desk.send(ANN, fetch(epoch, 1))) == [b"second"]
