"""Keep call results by token, so that a late copy of a call is not executed again.

A client repeats a call until it gets an answer. If the leader or the connection changes between two
copies, the group may decide both. The second copy gets the result of the first, marked `already`.

A token is valid for one topic only. A client that knows another client's token therefore needs
permission on that topic to read or replace the result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from oncecast.wire.results import Result

# A client stops repeating a call once it gets an answer, so copies arrive within seconds. Clients
# make these calls about once per topic or subscription, so 1,000 results cover a much longer time.
# They take less than 1 MB in memory and in a snapshot.
ANSWERED_MAX = 1000


class Answer(NamedTuple):
    topic: str
    result: Result


class Answered:
    """The last `ANSWERED_MAX` results, in log order."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], Answer] = OrderedDict()  # by topic and token

    def get(self, token: str, topic: str) -> Result | None:
        known = self._answers.get((topic, token))
        return None if known is None else known.result

    def add(self, token: str, topic: str, result: Result) -> None:
        """Store the result, marked `already`, for later copies of the call."""
        if "already" in result.__struct_fields__:
            result = msgspec.structs.replace(result, already=True)
        self._answers[topic, token] = Answer(topic, result)
        if len(self._answers) > ANSWERED_MAX:
            self._answers.popitem(last=False)

    def items(self) -> Iterable[tuple[str, Answer]]:
        """Return the tokens and answers, in log order."""
        return [(token, answer) for (_, token), answer in self._answers.items()]

    def about(self, chosen: Callable[[str], bool]) -> Iterator[tuple[str, Answer]]:
        """Return the tokens and answers for topics that `chosen` accepts."""
        return (each for each in self.items() if chosen(each[1].topic))
