"""Results of calls by their tokens, so that a late copy of a call changes nothing.

A client repeats a call until it is answered. If the leader or the connection changes between two
copies, both are decided. The second copy gets the result of the first one, marked `already`.

A token counts for one topic. A client may know the token of another client. Without permission on
the same topic, it neither gets the result of that call nor takes its place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from oncecast.wire.results import Result

# A client stops repeating a call when it is answered, so the last copy is late by seconds, or by
# the delay of the network. Clients make these calls once per topic or subscription, so 1,000 of
# them cover a much longer time. They take less than 1 MB of memory and of a snapshot.
ANSWERED_MAX = 1000


class Answer(NamedTuple):
    topic: str
    result: Result


class Answered:
    """The last `ANSWERED_MAX` results, in the order of the log."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], Answer] = OrderedDict()  # by topic and token

    def get(self, token: str, topic: str) -> Result | None:
        known = self._answers.get((topic, token))
        return None if known is None else known.result

    def add(self, token: str, topic: str, result: Result) -> None:
        """Store the result for later copies of a call."""
        if "already" in result.__struct_fields__:
            result = msgspec.structs.replace(result, already=True)
        self._answers[topic, token] = Answer(topic, result)
        if len(self._answers) > ANSWERED_MAX:
            self._answers.popitem(last=False)

    def items(self) -> Iterable[tuple[str, Answer]]:
        """Return the tokens and answers, in the order of the log."""
        return [(token, answer) for (_, token), answer in self._answers.items()]

    def about(self, chosen: Callable[[str], bool]) -> Iterator[tuple[str, Answer]]:
        """Return the answers about topics that `chosen` accepts."""
        return (each for each in self.items() if chosen(each[1].topic))
