"""Decide which messages a table lacks, and how to split them into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oncecast.client import blocking
from oncecast.client.starts import EARLIEST, from_offset
from oncecast.errors import MessagesLost, OutOfRange, TopicReplaced
from oncecast.spark.archive.intervals import merged, missing
from oncecast.spark.archive.values import Archived
from oncecast.spark.ranges import Range
from oncecast.wire.commands import FromOffset, Start
from oncecast.wire.frames import TopicView


def lacking(
    client: blocking.Client,
    view: TopicView,
    archived: Archived | None,
    start: Start | None,
    end: int,
) -> list[Range]:
    """Return the offsets before `end` that a table lacks, from `start` or from the table's end.

    Raise an error if the topic has been recreated, or no longer has some of these offsets.
    """
    topic = view.name
    if archived is not None and archived.topic_id != view.id:
        raise TopicReplaced(topic).reworded(remedy="archive the new topic to another directory")
    if start is None:
        start = EARLIEST if archived is None else from_offset(archived.end)
    asked = start.offset if isinstance(start, FromOffset) else client.locate(topic, start).offset
    if asked > view.next:
        raise OutOfRange(view.next).within(f"offset {asked} of topic {topic!r}")
    held = () if archived is None else archived.held
    size = max(1, view.bytes // max(1, view.next - view.first))
    found = [
        Range(topic, view.id, first, until, size) for first, until in missing((asked, end), held)
    ]
    if found and found[0].first < view.first:
        raise MessagesLost(topic, found[0].first, view.first).reworded(
            remedy="use --from earliest to continue with the messages that the topic still has"
        )
    return found


def first_rows(ranges: Iterable[Range], rows_max: int | None) -> list[Range]:
    """Return the ranges of the first `rows_max` messages."""
    if rows_max is None:
        return list(ranges)
    found, left = [], rows_max
    for each in ranges:
        if left:
            found.append(each._replace(until=min(each.until, each.first + left)))
            left -= found[-1].rows
    return found


def with_ranges(topics: Mapping[str, Archived], ranges: Sequence[Range]) -> dict[str, Archived]:
    """Return what the table holds per topic once the ranges are added."""
    found: dict[str, Archived] = {}
    for each in ranges:
        before = found.get(each.topic) or topics.get(each.topic)
        held = () if before is None else before.held
        found[each.topic] = Archived(each.topic_id, merged([*held, (each.first, each.until)]))
    return found
