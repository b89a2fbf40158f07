"""What the driver of a query knows of its topics: where they begin and end, and what is gone."""

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
        """Each topic's place; what `where` does not name is at `otherwise`."""
        names = self.names()
        if isinstance(where, dict):
            for name in set(where) - set(names):
                raise BadOption(f"offsets are given for topic {name!r}, which is not read")
        return {
            name: self._client.locate(
                name, where.get(name, otherwise) if isinstance(where, dict) else where
            )
            for name in names
        }

    def start(self) -> dict[str, Position]:
        where = self._options.start or EARLIEST
        found = {}
        for name, place in self.locate(where, EARLIEST).items():
            asked = where.get(name) if isinstance(where, dict) else where
            if isinstance(asked, FromOffset):
                self._check(name, asked.offset, place)
            found[name] = Position(place.life, place.offset, place.offset)
        return found

    def _check(self, name: str, offset: int, place: Located) -> None:
        if offset > place.next:
            raise beyond(name, offset, place)
        if offset < place.first:
            self.lost(f"offsets {offset} to {place.first - 1} of topic {name!r} are gone")

    def end(self, where: Ends = NEW) -> dict[str, Located]:
        found = self.locate(where, NEW)
        for name, place in found.items():
            asked = where.get(name) if isinstance(where, dict) else where
            if isinstance(asked, FromOffset) and asked.offset > place.next:
                raise beyond(name, asked.offset, place)
        return found

    def towards(self, places: Mapping[str, Located], start: Positions) -> dict[str, Position]:
        """How far a query that is at `start` can read; topics that have come since, from their
        first message on."""
        for name in start.keys() - places.keys():
            self.lost(f"topic {name!r} is gone")
        found = dict(start)
        for name, place in places.items():
            before = start.get(name)
            if before is not None and before.life != place.life:
                self.lost(f"topic {name!r} was deleted and made again")
            if before is None or before.life != place.life:
                found[name] = Position(place.life, place.first, place.offset)
            else:
                found[name] = before._replace(next=max(before.next, place.offset))
        return found

    def still_there(self, range_: Range) -> Range:
        """What of it is, with how large its messages are."""
        name, first, until = range_.topic, range_.first, range_.until
        view = self._view(name)
        if view is None or view.id != range_.life:
            again = "is gone" if view is None else "was deleted and made again"
            self.lost(f"topic {name!r} {again}")
            return range_._replace(first=until)
        if first < view.first:
            self.lost(f"offsets {first} to {min(view.first, until) - 1} of {name!r} are gone")
        size = max(1, view.bytes // max(1, view.next - view.first))
        return range_._replace(first=min(max(first, view.first), until), size=size)

    def keep(self, positions: Positions, *, forward: bool) -> None:
        """The topics keep what lies behind these positions; what is before, only if `forward`.

        Who asks where to begin may be a query that died in its first micro-batch, and then needs
        what lies between the first time it asked and this one.
        """
        name = self._options.subscription
        if name is None:
            return
        for topic, at in positions.items():
            cursors = self._cursors(topic, at.life)
            if cursors is not None and (forward or cursors.get(name, at.next + 1) > at.next):
                self._client.hold(topic, name, from_offset(at.next))

    def _cursors(self, topic: str, life: int) -> dict[str, int] | None:
        """Of its subscriptions; None if that life of the topic is over."""
        view = self._view(topic)
        if view is None or view.id != life:
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


def beyond(name: str, offset: int, place: Located) -> errors.OutOfRange:
    error = errors.OutOfRange(place.next).within(f"offset {offset} of topic {name!r}")
    return error.reworded(remedy="use an offset that the topic has, or latest")
