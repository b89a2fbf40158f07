"""The topics of a query as seen by its driver, with their ends and lost messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import TypeVar, assert_never

from oncecast import errors
from oncecast.client import blocking
from oncecast.client.starts import EARLIEST, NEW, from_offset
from oncecast.errors import BadOption, DataLost
from oncecast.spark.ranges import Position, Positions, Range
from oncecast.spark.source_options import Ends, SourceOptions
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset, FromTime, Start
from oncecast.wire.frames import TopicView
from oncecast.wire.partitions import MARK

# Maximum number of topics that are described one by one; more topics are listed in pages of 1,000.
FEW = 16
IN_FLIGHT = 16  # maximum number of calls in flight from one driver

Views = Mapping[str, TopicView]
R = TypeVar("R")


class Topics:
    """The topics of a query, read through a client."""

    def __init__(self, client: blocking.Client, options: SourceOptions) -> None:
        self._client, self._options = client, options

    def views(self) -> dict[str, TopicView]:
        """Return the selected topics that exist."""
        if self._options.pattern is None:
            return self._with_archive(self._divided(self._described(self._options.topics)))
        wanted = re.compile(self._options.pattern)
        found = (view for view in self._client.topics() if wanted.fullmatch(view.name))
        return self._with_archive(self._divided({view.name: view for view in found}))

    def _divided(self, views: dict[str, TopicView]) -> dict[str, TopicView]:
        """Replace each topic that has partitions by its partitions."""
        found: dict[str, TopicView] = {}
        for name, view in views.items():
            if not view.partitions:
                found[name] = view
            elif self._options.archive is not None:
                raise BadOption(
                    f"topic {name!r} has partitions, which an archive does not support",
                    "remove option archive",
                )
            else:
                found |= {each.name: each for each in self._client.partitions(name)}
        return found

    def described(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Return the topics with these names that exist."""
        return self._with_archive(self._described(names))

    def _with_archive(self, views: dict[str, TopicView]) -> dict[str, TopicView]:
        """Extend the topics by the archived messages before their first message."""
        if self._options.archive is None:
            return views
        from oncecast.spark.archive.reading import archived, extended  # needs Arrow

        held = archived(Path(self._options.archive))
        for name in views.keys() & held.keys():
            end, first = held[name].end, views[name].first
            if end < first:
                self.lost(
                    f"offsets {end} to {first - 1} of topic {name!r} are gone and not archived"
                )
        return {
            name: extended(view, held[name]) if name in held else view
            for name, view in views.items()
        }

    def _described(self, names: Iterable[str]) -> dict[str, TopicView]:
        wanted = sorted(set(names))
        if len(wanted) > FEW:
            listed = {view.name: view for view in self._client.topics(shared_prefix(wanted))}
            # Lists show partitions only as a part of their topic.
            left = self._each([name for name in wanted if name not in listed and MARK in name])
            return {name: listed[name] for name in wanted if name in listed} | left
        return self._each(wanted)

    def _each(self, names: list[str]) -> dict[str, TopicView]:
        found = zip(names, together(self._view, names), strict=True)
        return {name: view for name, view in found if view is not None}

    def _view(self, topic: str) -> TopicView | None:
        try:
            return self._client.describe(topic)
        except errors.NoSuchTopic:
            return None

    # Where a query starts and ends.

    def start(self, views: Views) -> dict[str, Position]:
        self.check_all_exist(views)
        asked = self._asked(views, self._options.start or EARLIEST, EARLIEST)
        found = {}
        for name, offset in self._offsets(views, asked).items():
            view = views[name]
            if offset > view.next:
                raise beyond(name, offset, view)
            if (
                offset == view.next
                and self._options.must_find
                and isinstance(asked[name], FromTime)
            ):
                raise BadOption(
                    f"topic {name!r} has no message since its starting time",
                    "use an earlier time, or startingOffsetsByTimestampStrategy latest",
                )
            if offset < view.first:
                self.lost(f"offsets {offset} to {view.first - 1} of topic {name!r} are gone")
            at = max(offset, view.first)
            found[name] = Position(view.id, at, at)
        return found

    def end(self, views: Views, where: Ends = NEW) -> dict[str, Position]:
        """Return the position of each topic at `where`, for a query that begins at its start."""
        found = {}
        for name, offset in self._offsets(views, self._asked(views, where, NEW)).items():
            view = views[name]
            if offset > view.next:
                raise beyond(name, offset, view)
            found[name] = Position(view.id, view.first, offset)
        return found

    def check_all_exist(self, views: Views) -> None:
        bases = {view.partition_of for view in views.values()}
        for name in self._options.topics:
            if name not in views and name not in bases:
                raise errors.NoSuchTopic(name)

    def _asked(self, views: Views, where: Ends, otherwise: Start) -> dict[str, Start]:
        """Return the start for each topic in `where`, or `otherwise` if `where` lacks the topic.

        Raise BadOption if `where` contains a topic that the query does not read.
        """
        if not isinstance(where, dict):
            return dict.fromkeys(views, where)
        where = spread(where, views)
        for name in sorted(where):
            if name not in views:
                raise BadOption(
                    f"the offsets include topic {name!r}, which the query does not read",
                    "remove it",
                )
        return {name: where.get(name, otherwise) for name in views}

    def _offsets(self, views: Views, asked: Mapping[str, Start]) -> dict[str, int]:
        by_time = [name for name, start in asked.items() if isinstance(start, FromTime)]
        located = together(lambda name: self._client.locate(name, asked[name]).offset, by_time)
        found = dict(zip(by_time, located, strict=True))
        return {
            name: found[name] if name in found else offset_of(asked[name], view)
            for name, view in views.items()
        }

    # How far a query can read.

    def towards(self, ends: Positions, start: Positions) -> dict[str, Position]:
        """Return the positions up to which a query at `start` can read.

        A new topic begins with its first message. Lost topics raise DataLost or are skipped.
        """
        for name in sorted(start.keys() - ends.keys()):
            self.lost(self._missing(name))
        found = dict(start)
        for name, end in ends.items():
            before = start.get(name)
            if before is not None and before.topic_id != end.topic_id:
                self.lost(f"topic {name!r} was deleted and recreated")
            if before is None or before.topic_id != end.topic_id:
                found[name] = end
            else:
                found[name] = before._replace(next=max(before.next, end.next))
        return found

    def _missing(self, name: str) -> str:
        if self._options.topics and not {name, name.rpartition(MARK)[0]} & {*self._options.topics}:
            return f"topic {name!r} is in the checkpoint, but not in option topics"
        return f"topic {name!r} no longer exists"

    def still_there(self, range_: Range, views: Views) -> Range:
        """Return the part of the range that still exists, with the size of its messages."""
        name, first, until = range_.topic, range_.first, range_.until
        view = views.get(name)
        if view is None or view.id != range_.topic_id:
            fact = "no longer exists" if view is None else "was deleted and recreated"
            self.lost(f"topic {name!r} {fact}")
            return range_._replace(first=until)
        if first < view.first:
            self.lost(f"offsets {first} to {min(view.first, until) - 1} of topic {name!r} are gone")
        size = max(1, view.bytes // max(1, view.next - view.first))
        first = min(max(first, view.first), until)
        return range_._replace(first=first, size=size, partition_of=view.partition_of)

    def check_kept(self, views: Views) -> None:
        """Raise DataLost if a batch would be empty because the policy of a topic keeps nothing."""
        for name, view in views.items():
            if view.first == view.next > 0 and not view.policy.retains:
                gone = f"topic {name!r} is empty: its {view.next:,} messages are gone"
                self.lost(f"{gone}, because its policy keeps messages only for subscriptions")

    def check_keepable(self, views: Views) -> None:
        """Raise DataLost if a topic keeps nothing for a stream without a subscription."""
        if self._options.subscription is not None:
            return
        for name, view in views.items():
            if not view.policy.retains and not view.subscriptions:
                self.lost(f"topic {name!r} keeps no messages: it has no policy and no subscription")

    # The subscription of a query.

    def keep(self, positions: Positions, views: Views, *, forward: bool) -> None:
        """Move the subscription to these positions, so that the topics keep later messages.

        Without `forward`, the cursor only moves back. A query that asks where to begin may have
        crashed in its first micro-batch. Such a query needs the messages since it first asked.
        """
        name = self._options.subscription
        if name is None:
            return

        def moves(topic: str) -> bool:
            view, at = views.get(topic), positions[topic]
            if view is None or view.id != at.topic_id:
                return False  # moving the cursor would create the topic
            cursor = cursor_of(view, name)
            return cursor is None or cursor > at.next or (forward and cursor < at.next)

        def move(topic: str) -> None:
            at = from_offset(positions[topic].next)
            if cursor_of(views[topic], name) is None:
                self._client.hold(topic, name, at)
            else:
                self._client.seek(topic, name, at)

        together(move, filter(moves, positions))

    def waiting_since(self, positions: Positions) -> dict[str, int]:
        """Return the append time of the message at each position, in microseconds since 1970."""

        def appended(topic: str) -> int:
            try:
                return self._client.locate(topic, from_offset(positions[topic].next)).time
            except errors.NoSuchTopic:
                return 0

        return dict(zip(positions, together(appended, positions), strict=True))

    def lost(self, message: str) -> None:
        if self._options.fail_on_loss:
            raise DataLost(message)


def spread(where: dict[str, Start], views: Views) -> dict[str, Start]:
    """Apply the start of a partitioned topic to those of its partitions that have none."""
    found = dict(where)
    for name, view in views.items():
        start = where.get(view.partition_of)
        if start is None or not view.partition_of:
            continue
        if isinstance(start, FromOffset):
            raise BadOption(
                f"topic {view.partition_of!r} has partitions, each with its own offsets",
                f"name the partitions, such as {name!r}",
            )
        found.pop(view.partition_of, None)
        found.setdefault(name, start)
    return found


def shared_prefix(names: list[str]) -> str:
    """Return the prefix that all of these sorted names share."""
    pairs = zip(names[0], names[-1], strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def together(work: Callable[[str], R], topics: Iterable[str]) -> list[R]:
    """Return the results of `work` for each topic, with several calls in flight."""
    found = list(topics)
    if len(found) < 2:
        return list(map(work, found))
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        return list(pool.map(work, found))


def offset_of(start: Start, view: TopicView) -> int:
    match start:
        case FromEarliest():
            return view.first
        case FromNew():
            return view.next
        case FromOffset(offset):
            return offset
        case FromTime():
            raise AssertionError("only the node knows append times")
        case _:
            assert_never(start)


def cursor_of(view: TopicView, name: str) -> int | None:
    """Return the cursor of a subscription, or None if it does not exist."""
    return next((each.cursor for each in view.subscriptions if each.name == name), None)


def beyond(name: str, offset: int, view: TopicView) -> errors.OutOfRange:
    error = errors.OutOfRange(view.next).within(f"offset {offset} of topic {name!r}")
    return error.reworded(remedy="use an existing offset, or latest")
