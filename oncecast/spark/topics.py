"""The topics of a query as seen by its driver: their ends, and lost messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from oncecast import errors
from oncecast.client import blocking
from oncecast.client.scanning import Located
from oncecast.client.starts import EARLIEST, NEW, from_offset
from oncecast.errors import BadOption, DataLost
from oncecast.spark.options import Ends, SourceOptions
from oncecast.spark.ranges import Position, Positions, Range
from oncecast.wire.commands import FromOffset, Start
from oncecast.wire.frames import TopicView


class Topics:
    """The driver's view of the node."""

    def __init__(self, client: blocking.Client, options: SourceOptions) -> None:
        self._client, self._options = client, options

    def names(self) -> list[str]:
        if self._options.pattern is None:
            return sorted(set(self._options.topics))
        wanted = re.compile(self._options.pattern)
        return [view.name for view in self._client.topics() if wanted.fullmatch(view.name)]

    def locate(self, where: Ends, otherwise: Start) -> dict[str, Located]:
        """Return the position of each topic, at `otherwise` if `where` does not name it."""
        names = self.names()
        if isinstance(where, dict):
            for name in set(where) - set(names):
                raise BadOption(
                    f"offsets name topic {name!r}, which the query does not read", "remove it"
                )
        return {
            name: self._client.locate(
                name, where.get(name, otherwise) if isinstance(where, dict) else where
            )
            for name in names
        }

    def start(self) -> dict[str, Position]:
        where = self._options.start or EARLIEST
        found = {}
        for name, located in self.locate(where, EARLIEST).items():
            asked = where.get(name) if isinstance(where, dict) else where
            if isinstance(asked, FromOffset):
                self._check(name, asked.offset, located)
            found[name] = Position(located.topic_id, located.offset, located.offset)
        return found

    def _check(self, name: str, offset: int, located: Located) -> None:
        if offset > located.next:
            raise beyond(name, offset, located)
        if offset < located.first:
            self.lost(f"offsets {offset} to {located.first - 1} of topic {name!r} are gone")

    def end(self, where: Ends = NEW) -> dict[str, Located]:
        found = self.locate(where, NEW)
        for name, located in found.items():
            asked = where.get(name) if isinstance(where, dict) else where
            if isinstance(asked, FromOffset) and asked.offset > located.next:
                raise beyond(name, asked.offset, located)
        return found

    def towards(self, ends: Mapping[str, Located], start: Positions) -> dict[str, Position]:
        """Return how far a query at `start` can read. New topics begin with their first message."""
        for name in start.keys() - ends.keys():
            self.lost(f"topic {name!r} is gone")
        found = dict(start)
        for name, located in ends.items():
            before = start.get(name)
            if before is not None and before.topic_id != located.topic_id:
                self.lost(f"topic {name!r} was deleted and created again")
            if before is None or before.topic_id != located.topic_id:
                found[name] = Position(located.topic_id, located.first, located.offset)
            else:
                found[name] = before._replace(next=max(before.next, located.offset))
        return found

    def still_there(self, range_: Range) -> Range:
        """Return the part of the range that still exists, with the size of its messages."""
        name, first, until = range_.topic, range_.first, range_.until
        view = self._view(name)
        if view is None or view.id != range_.topic_id:
            fact = "is gone" if view is None else "was deleted and created again"
            self.lost(f"topic {name!r} {fact}")
            return range_._replace(first=until)
        if first < view.first:
            self.lost(f"offsets {first} to {min(view.first, until) - 1} of {name!r} are gone")
        size = max(1, view.bytes // max(1, view.next - view.first))
        return range_._replace(first=min(max(first, view.first), until), size=size)

    def keep(self, positions: Positions, *, forward: bool) -> None:
        """Move the subscription to these positions, so that later messages are kept.

        Without `forward` it only moves back. A query that asks where to begin may have crashed
        in its first micro-batch, and then needs the messages since it first asked.
        """
        name = self._options.subscription
        if name is None:
            return
        for topic, at in positions.items():
            cursors = self._cursors(topic, at.topic_id)
            if cursors is not None and (forward or cursors.get(name, at.next + 1) > at.next):
                self._client.hold(topic, name, from_offset(at.next))

    def _cursors(self, topic: str, topic_id: int) -> dict[str, int] | None:
        """Return the cursors of the subscriptions, or None if the topic has another id."""
        view = self._view(topic)
        if view is None or view.id != topic_id:
            return None
        return {each.name: each.cursor for each in view.subscriptions}

    def _view(self, topic: str) -> TopicView | None:
        try:
            return self._client.describe(topic)
        except errors.NoSuchTopic:
            return None

    def lost(self, message: str) -> None:
        if self._options.fail_on_loss:
            raise DataLost(message)


def beyond(name: str, offset: int, located: Located) -> errors.OutOfRange:
    error = errors.OutOfRange(located.next).within(f"offset {offset} of topic {name!r}")
    return error.reworded(remedy="use an existing offset, or latest")
