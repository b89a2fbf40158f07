"""SVC-5 SVC-7 REP-6: commands without effect, and rare refusals."""

from __future__ import annotations

import google_crc32c
import pytest

from oncecast.broker import moves, state
from oncecast.broker.clock import Dispute
from oncecast.broker.extent import Extent
from oncecast.broker.holdings import Holdings
from oncecast.broker.machine import Machine
from oncecast.broker.producer import Producer
from oncecast.broker.staging import Part, Source
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import key_of
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import Limits, is_name
from oncecast.wire.retention import Policy
from tests.broker.machine_steps import Steps
from tests.broker.test_machine_moves import GIVER, NO, TAKER, UNTIL, YES, Move, holdings

# -- topics and time --


def test_deleting_a_missing_topic_advances_the_clock() -> None:
    steps = Steps()
    steps.apply(do.DeleteTopic("nothing", 5000))
    assert steps.machine.registry.clock.now == 5000


def test_limits_are_set_by_a_command() -> None:
    steps = Steps()
    assert steps.apply(do.SetLimits(Limits(producers_max=1))) == done.LimitsSet()
    steps.open(producer="p")
    refused = steps.apply(do.OpenProducer("t", "q", "inc-1", 0))
    assert refused == errors.TooMany("producers in the topic", 1)


def test_name_has_1_to_255_bytes() -> None:
    assert [is_name(each) for each in ("a", "x" * 255)] == [True, True]
    assert [is_name(each) for each in ("", "x" * 256, None, 5, b"bytes")] == [False] * 5


def test_state_directory_id_must_be_a_valid_name() -> None:
    refused = Steps().apply(do.OpenProducer("t", "p", "inc-1", 0, directory_id="x" * 256))
    assert refused == errors.InvalidName("state directory id")


def test_message_in_a_deleted_topic_is_not_carried() -> None:
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    put = do.Put("t", "p", epoch, 0, 1, 100, 0, b"bytes")
    old = steps.slot
    steps.apply(do.DeleteTopic("t", 0))
    assert steps.apply(do.Carry(old, 0, put)) == done.Carried(moved=False)
    assert steps.machine.needed() == steps.slot + 1


def test_put_without_an_offset_is_not_carried() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    put = do.Put("t", "p", epoch, 0, 1, 100, 0, b"bytes")
    assert steps.apply(do.Carry(steps.slot, -1, put)) == done.Carried(moved=False)


def test_topic_declared_after_its_first_use_is_kept() -> None:
    """SVC-5"""
    steps = Steps()
    steps.subscribe()
    assert steps.create() == done.TopicCreated(1, already=True)
    steps.apply(do.Unsubscribe("t", "s", 0))
    assert "t" in steps.machine.registry.topics


def test_producer_idle_time_starts_at_the_command_that_sets_the_limit() -> None:
    """SVC-9: later commands and other limits do not change it."""
    steps = Steps()
    steps.open()
    producer = steps.machine.registry.topics["t"].producers["p"]
    steps.apply(do.SetLimits(Limits(producers_max=5)))
    assert (producer.record, producer.used) == (0, 0)
    for now, idle in ((2000, 50), (3000, 60), (4000, 0)):
        steps.tick(now)
        steps.apply(do.SetLimits(Limits(producer_idle_us=idle)))
        assert (producer.record, producer.used) == (producer.epoch, 2000)


def test_source_idle_time_starts_at_the_command_that_sets_the_limit() -> None:
    """SVC-9"""
    steps = Steps()
    steps.stage(0, "a")
    source = steps.machine.registry.staging.sources["query"]
    steps.apply(do.SetLimits(Limits(producers_max=5)))
    assert source.used == 0
    for now, idle in ((2000, 50), (3000, 60), (4000, 0)):
        steps.tick(now)
        steps.apply(do.SetLimits(Limits(source_idle_us=idle)))
        assert source.used == 2000


def test_new_machine_needs_no_slots() -> None:
    """SVC-9"""
    machine = Machine()
    assert (machine.registry.last_slot, machine.needed()) == (-1, 0)


def test_checksum_covers_the_whole_state() -> None:
    """SVC-10: replicas of different versions compare it."""
    assert state.VERSION == 2
    steps = Steps()
    steps.open()
    assert steps.machine.checksum() == google_crc32c.value(b"".join(steps.machine.state()))


def test_staged_parts_are_carried_without_an_offset() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    steps.put(steps.open(), 0, 2)
    steps.stage(0, "a", 3)
    last = steps.slot
    assert list(steps.machine.extents_before(last + 1)) == [
        ("t", Extent(last - 1, 0, 2, 0)),
        ("t", Extent(last, 0, 3, -1)),
    ]
    assert list(steps.machine.extents_before(last)) == [("t", Extent(last - 1, 0, 2, 0))]


def test_batch_cut_off_by_the_message_limit_is_omitted() -> None:
    """SVC-3"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    for sequence in (0, 2, 4):
        steps.put(epoch, sequence, 2)
    for messages, whole in ((1, 0), (2, 1), (3, 1), (4, 2), (6, 3)):
        found = steps.machine.fetch("t", 0, messages, 1 << 30)
        assert steps.machine.uncut("t", found) == found[:whole]


def test_topic_expires_messages_only_while_its_policy_has_an_age_limit() -> None:
    """SVC-9"""
    steps = Steps()
    aging = steps.machine.registry.aging
    steps.create(policy=Policy(age_us=5))
    assert list(aging) == ["t"]
    steps.apply(do.SetPolicy("t", 0, Policy(keep_all=True)))
    assert aging == {}
    steps.apply(do.SetPolicy("t", 0, Policy(age_us=5)))
    steps.apply(do.DeleteTopic("t", 0))
    assert aging == {}


@pytest.mark.parametrize(
    ("policy", "retains", "fault"),
    [
        (Policy(), False, ""),
        (Policy(age_us=1), True, ""),
        (Policy(bytes_max=1), True, ""),
        (Policy(keep_all=True), True, ""),
        (Policy(age_us=1, drop_unread=True), True, ""),
        (Policy(bytes_max=1, drop_unread=True), True, ""),
        (Policy(age_us=-1), False, "the retention age is -1e-06 s"),
        (Policy(bytes_max=-1), False, "the retention size is -1 bytes"),
        (Policy(keep_all=True, drop_unread=True), True, "cannot be combined"),
        (Policy(keep_all=True, age_us=1), True, "cannot be combined"),
        (Policy(keep_all=True, bytes_max=1), True, "cannot be combined"),
        (Policy(drop_unread=True), False, "needs an age or size limit"),
    ],
)
def test_policy_reports_whether_it_retains_messages_and_is_valid(
    policy: Policy, retains: bool, fault: str
) -> None:
    """SVC-9"""
    assert policy.retains == retains
    assert fault in policy.fault
    assert bool(policy.fault) == bool(fault)


def test_full_disk_has_its_own_error_message() -> None:
    """SVC-7"""
    texts = [errors.Overloaded(what).raised().message for what in (errors.DISK, "calls")]
    assert texts == ["the node's disk is full", "too many calls"]


# -- producers --


def test_batches_at_the_limits_are_accepted() -> None:
    """SVC-7"""
    steps = Steps(Limits(batch_messages_max=3, batch_bytes_max=100))
    epoch = steps.open()
    assert steps.put(epoch, 0, 3, size=100) == done.Appended(0, 3, kept=False)
    assert steps.put(epoch, 3, 4, size=100) == errors.TooLarge("messages", 3)
    assert steps.put(epoch, 3, 3, size=101) == errors.TooLarge("bytes", 100)
    assert steps.put(epoch, -1) == errors.InvalidArgument(
        "the sequence number is -1 (minimum 0); count messages from 0"
    )
    staged = steps.apply(do.Stage("query", 0, "a", "t", 4, 1, 0, b""))
    assert staged == errors.TooLarge("messages", 3)


def test_state_directory_limit_does_not_count_the_current_directory() -> None:
    """SVC-2"""
    steps = Steps(Limits(directories_max=1))
    for directory_id in ("a", "b"):
        opened = steps.apply(do.OpenProducer("t", "p", directory_id, 0, directory_id=directory_id))
        assert isinstance(opened, done.Opened)
        steps.put(opened.epoch, opened.next_sequence)
    refused = steps.apply(do.OpenProducer("t", "p", "c", 0, directory_id="c"))
    assert refused == errors.TooMany("state directories under one producer name", 1)
    assert isinstance(steps.apply(do.OpenProducer("t", "p", "b", 0, directory_id="b")), done.Opened)


def test_existing_sources_and_producers_are_accepted_at_the_limit() -> None:
    """SVC-7: limits apply only to new sources and producers."""
    steps = Steps(Limits(sources_max=1, producers_max=1))
    for number in range(2):
        steps.stage(number, "a")
        assert isinstance(steps.publish(number, "a"), done.Published)


def test_closing_a_source_advances_the_clock() -> None:
    """SVC-9"""
    steps = Steps()
    steps.apply(do.CloseSource("query", 5000))
    assert steps.machine.registry.clock.now == 5000


@pytest.mark.parametrize(
    ("put", "answer"),
    [
        (do.Put("t", "p", 1, 0, 2, 0, 0, b""), done.Already(0, 2)),
        (do.Put("t", "p", 1, 1, 3, 0, 0, b""), done.Already(1, 3)),
        (do.Put("t", "p", 1, 0, 1, 0, 0, b""), done.Already(0, 1)),
        (do.Put("t", "p", 1, 0, 5, 0, 0, b""), None),
        (do.Put("t", "p", 1, 3, 2, 0, 0, b""), None),
        (do.Put("t", "p", 1, -1, 2, 0, 0, b""), None),
        (do.Put("t", "p", 2, 0, 2, 0, 0, b""), None),
        (do.Put("t", "q", 1, 0, 2, 0, 0, b""), None),
    ],
)
def test_only_completely_stored_puts_get_already(put: do.Put, answer: done.Already | None) -> None:
    """SVC-2"""
    steps = Steps()
    assert steps.open() == 1
    steps.put(1, 0, 4)
    assert steps.machine.registry.topics["t"].already(put) == answer


def test_index_records_how_many_messages_of_a_batch_were_already_stored() -> None:
    """SVC-2"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0, 2)
    steps.put(epoch, 1, 3)
    notes = [each[4:6] for each in steps.machine.registry.topics["t"].index.entries(0)]
    assert notes == [(0, -1), (1, -1)]


# -- time --


def test_all_stored_times_are_corrected_when_a_dispute_ends() -> None:
    """SVC-9 REP-6: this includes the times in a moving part."""
    steps = Steps(Limits(clock_step_us=10, producer_idle_us=100, source_idle_us=100))
    registry = steps.machine.registry
    steps.apply(moves.Found("g-2", first=True))
    holdings = registry.holdings
    assert holdings is not None
    topics: list[Topic] = []
    parts: list[Part] = []
    sources: list[Source] = []
    for name in ("own", "in", "out"):
        topic = Topic(1, name, Policy(keep_all=True), False, registry.live_slots)
        topic.producers["p"] = Producer(1, "inc-1")
        topic.producers["q"] = Producer(1, "inc-1")
        topic.producers["p"].used, topic.producers["q"].used = 6000, 1005
        registry.live_slots.add(len(topics))
        topic.index.append(len(topics), 1, 1, 6000)
        topics.append(topic)
        parts.append(Part(9, "t", 1, 1, 6000))
        parts.append(Part(9, "t", 1, 1, 1004))
    for index, used in ((0, 6000), (2, 1004)):
        source = Source()
        source.used = used
        source.staged[0] = {"a": parts[index], "b": parts[index + 1]}
        sources.append(source)
    registry.topics["own"], holdings.incoming["in"], holdings.outgoing["out"] = topics
    registry.staging.sources["s"], holdings.sources["s"] = sources
    holdings.parts.update({("s", 0, "a"): parts[4], ("s", 0, "b"): parts[5]})
    registry.clock.restore(6000, (1000, 6000, Dispute.AHEAD, 0, 0))
    # The difference is within a step of 10.
    assert registry.pass_time(1011).dispute is Dispute.AHEAD
    assert registry.pass_time(1005).dispute is Dispute.NONE
    for topic in topics:
        assert [each.time for each in topic.index.entries(0)] == [1005]
        assert [each.used for each in topic.producers.values()] == [1005, 1005]
    assert [part.time for part in parts] == [1005, 1004] * 3
    assert [source.used for source in sources] == [1005, 1004]


# -- cursors --


def test_message_at_the_seek_target_is_kept() -> None:
    """SVC-3: this holds even if the message is old enough to expire in the same command."""
    steps = Steps()
    steps.create(policy=Policy(age_us=100))
    steps.subscribe()
    epoch, reading = steps.open(), steps.attach().epoch
    steps.put(epoch, 0, 5)
    steps.ack(reading, 5)
    steps.apply(do.Seek("t", "s", do.FromEarliest(), steps.now + 200, "token"))
    assert steps.kept() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("at", [-1, 0])
def test_reading_from_a_time_includes_messages_at_that_time(at: int) -> None:
    """SVC-3"""
    steps = Steps()
    steps.now = 0
    steps.create(policy=Policy(keep_all=True))
    steps.put(steps.open(), 0)
    subscribed = steps.subscribe(start=do.FromTime(at))
    assert isinstance(subscribed, done.Subscribed)
    assert subscribed.cursor == 0


@pytest.mark.parametrize(("subscriptions", "most"), [(1, 18), (2, 20)])
def test_cursor_heap_is_rebuilt_when_most_entries_are_stale(subscriptions: int, most: int) -> None:
    """SVC-9"""
    steps = Steps()
    for number in range(subscriptions):
        steps.subscribe(f"s{number}")
    cursors = []
    for number in range(40):
        steps.apply(do.Seek("t", "s0", do.FromNew(), 0, f"token {number}"))
        cursors.append(len(steps.machine.registry.topics["t"]._cursors))
    assert (max(cursors), min(cursors)) == (most, subscriptions)


def test_topic_records_the_last_epoch_that_fenced_a_reader() -> None:
    """SVC-8"""
    steps = Steps()
    steps.create()
    topic = steps.machine.registry.topics["t"]
    fenced = [topic.fenced]
    for command in (
        do.Subscribe(
            "t", "s", do.FromNew(), 0
        ),  # it may fence readers of an earlier subscription with this name
        do.Attach("t", "s", "inc-1"),  # the first reader
        do.Attach("t", "s", "inc-2"),
        do.Subscribe("t", "z", do.FromNew(), 0),
        do.Seek("t", "s", do.FromEarliest(), 0, "token"),
    ):
        steps.apply(command)
        fenced.append(topic.fenced)
    assert fenced == [0, 1, 1, 3, 4, 5]
    restored = Machine.restore(steps.machine.state()).registry.topics["t"]
    assert restored.fenced == 5
    steps.create("empty")
    assert Machine.restore(steps.machine.state()).registry.topics["empty"].fenced == 0


def test_many_seeks_do_not_grow_the_cursor_heap() -> None:
    steps = Steps()
    steps.subscribe()
    steps.put(steps.open(), 0, 2)
    for at in range(100):
        steps.apply(do.Seek("t", "s", do.FromOffset(at % 2), 0, f"token {at}"))
    topic = steps.machine.registry.topics["t"]
    assert len(topic._cursors) <= 2 + 16
    assert topic.low_water() == 1


# -- staging --


def test_publish_counts_against_the_producer_limit() -> None:
    steps = Steps(Limits(producers_max=1))
    steps.open()
    steps.stage(0, "a")
    assert steps.publish(0, "a") == errors.TooMany("producers in the topic", 1)


def test_closing_a_source_on_a_ring_does_not_affect_other_topics() -> None:
    steps = Steps()
    steps.apply(moves.Found("g-2", True))
    for topic in ("t", "u"):
        steps.subscribe(topic=topic)
        steps.stage(0, "a", topic=topic)
        steps.apply(do.PublishStaged("query", 0, ("a",), 0, topic))
    assert steps.apply(do.CloseSource("query", 0, "t")) == done.SourceClosed(already=False)
    topics = steps.machine.registry.topics
    assert [list(topics[name].producers) for name in ("t", "u")] == [[], ["query"]]
    steps.stage(1, "b", topic="v")
    assert steps.apply(do.CloseSource("query", 0, "v")) == done.SourceClosed(already=False)


# -- moves --


def test_group_outside_a_ring_refuses_move_commands() -> None:
    steps = Steps()
    put = do.Put("t", "p", 1, 0, 1, 100, 0, b"bytes")
    rows = state.moved_out(Holdings("g-2", None))
    refused: list[moves.AnyCommand] = [
        moves.Retire(),
        moves.Claim("m", GIVER),
        moves.Import("m", "t", 1, 0, 1, 100, 0, 0, -1, put),
        moves.Adopt("m", UNTIL, UNTIL, 0, 0, 0, rows),
        moves.Freeze("m", UNTIL, TAKER),
    ]
    assert [steps.apply(command) for command in refused] == [NO] * 5
    over: list[moves.AnyCommand] = [
        moves.Abandon("m"),
        moves.Finish("m"),
        moves.Thaw("m"),
        moves.Release("m"),
    ]
    assert [steps.apply(command) for command in over] == [YES] * 4  # there is nothing to do
    assert steps.machine.registry.holdings is None


def test_group_can_be_founded_only_once() -> None:
    steps = Steps()
    assert steps.apply(moves.Found("g-2", True)) == YES
    assert steps.apply(moves.Found("g-2", False)) == YES
    assert steps.apply(moves.Found("g-a", True)) == NO
    assert (holdings(steps).group, holdings(steps).low) == ("g-2", key_of("g-2"))


def test_retired_group_claims_nothing() -> None:
    move = Move()
    assert move.importer.apply(moves.Retire()) == YES
    assert holdings(move.importer).retired
    assert move.importer.apply(moves.Claim("m", GIVER)) == NO


def test_group_that_retires_during_a_move_continues_it() -> None:
    move = Move()
    move.claim()
    move.importer.apply(moves.Retire())
    assert move.importer.apply(moves.Claim("m", GIVER)) == YES


def test_import_of_neither_a_put_nor_a_stage_is_refused() -> None:
    move = Move()
    move.claim()
    put = do.Put("t", "p", 1, 0, 1, 100, 0, b"bytes")
    assert move.importer.apply(moves.Import("m", "t", 1, -1, 1, 100, 0, 0, -1, put)) == NO
    assert move.importer.apply(moves.Import("other", "t", 1, 0, 1, 100, 0, 0, -1, put)) == NO


def test_move_cannot_finish_before_the_part_is_adopted() -> None:
    move = Move()
    move.claim()
    assert move.importer.apply(moves.Finish("m")) == NO
    assert move.importer.apply(moves.Finish("other")) == YES
    assert holdings(move.importer).claim is not None


def staged_move() -> tuple[Move, moves.Import]:
    move = Move()
    move.exporter.stage(1, "b", 3)
    move.claim()
    move.copy()
    staged = do.Stage("query", 1, "b", "t", 3, 100, 0, b"bytes")
    return move, moves.Import("m", "t", 0, -1, 3, 100, 1000, 0, -1, staged)


def test_exporter_regains_staged_parts_when_a_move_is_abandoned() -> None:
    move, part = staged_move()
    move.importer.apply(part)
    before = move.importer.machine.needed()
    assert before <= move.importer.slot
    move.freeze()
    move.exporter.apply(moves.Thaw("m"))
    done_ = move.exporter.apply(do.PublishStaged("query", 1, ("b",), 0, "t"))
    assert isinstance(done_, done.Published)
    assert (holdings(move.exporter).outgoing, holdings(move.exporter).sources) == ({}, {})
    move.importer.apply(moves.Abandon("m"))
    assert holdings(move.importer).parts == {}
    assert move.importer.machine.needed() == move.importer.slot + 1


@pytest.mark.parametrize("frozen", [False, True])
def test_staged_parts_in_a_move_appear_in_both_snapshots(frozen: bool) -> None:
    """SVC-10"""
    move, part = staged_move()
    move.importer.apply(part)
    if frozen:
        move.freeze()
    for group in (move.exporter, move.importer):
        restored = Machine.restore(group.machine.state())
        assert restored.checksum() == group.machine.checksum()
        assert restored.needed() == group.machine.needed()
        group.machine = restored
    if not frozen:
        move.freeze()
    assert move.adopt() == YES
    published = move.importer.apply(do.PublishStaged("query", 1, ("b",), 0, "t"))
    assert isinstance(published, done.Published)
    assert not published.already


def test_snapshot_with_two_heads_is_refused() -> None:
    steps = Steps()
    chunks = tuple(steps.machine.state())
    with pytest.raises(ValueError, match="two head rows"):
        Machine.restore((*chunks, *chunks))


def test_snapshot_with_a_moving_topic_but_no_group_is_refused() -> None:
    move = Move()
    move.claim()
    move.copy()
    registry = move.importer.machine.registry
    estate_ = registry.holdings
    assert estate_ is not None
    with pytest.raises(ValueError, match="a moving topic but no group"):
        state._holdings(Machine().registry)
    assert state._holdings(registry) is estate_
