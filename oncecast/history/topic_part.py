"""Turns the operations on one topic into items for a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from msgspec.structs import replace as replaced

from oncecast.errors import Fenced, Forgotten, Overloaded
from oncecast.history import topic_model
from oncecast.history.operation import History, Operation, cut
from oncecast.history.partition import (
    NONE,
    Part,
    Problem,
    absent,
    command_items,
    due_of,
)
from oncecast.history.search import Item
from oncecast.history.topic_model import Effect, Shown, TopicModel

PERHAPS_STORED = (Fenced.code, Forgotten.code)  # refusals of puts that may still be stored


class TopicPart(Part):
    def __init__(self, topic: str, operations: History) -> None:
        super().__init__(f"topic {topic!r}", with_publishes(operations))
        puts = [each.call for each in self.operations if each.kind in ("put", "publish")]
        self._first_put = min(puts, default=inf)  # the first put may create the topic
        self._enders = [each for each in self.operations if each.kind in ("delete", "unsubscribe")]
        seen = (each for each in self.operations if each.kind not in ("put", "publish"))
        self._seen = {digest for each in seen for digest in cut(each.digests)}
        epochs = {each.topic_id for each in self.operations if each.topic_id}
        # If the topic never ends, all operations belong to its only epoch.
        self._only = min(epochs) if not self._enders and len(epochs) == 1 else 0

    def problem(self, loose: frozenset[int] = NONE) -> Problem:
        items: list[Item] = []
        wild: dict[int, list[tuple[int, int]]] = {}
        for number, operation in enumerate(self.operations, 1):
            free = id(operation) in loose
            if free and operation.kind in ("put", "publish") and operation.offset >= 0:
                run = (operation.offset, operation.offset + operation.messages)
                wild.setdefault(operation.topic_id or self._only, []).append(run)
            else:
                items += self._pending(operation, self._items(operation, number, loose=free))
        runs = {epoch: joined_runs(each) for epoch, each in wild.items()}
        model = TopicModel(shown_by_epoch(items, self._of_one_put(items)), runs)
        return Problem(items, topic_model.ABSENT, model)

    def _of_one_put(self, items: Iterable[Item]) -> set[bytes]:
        """Return the messages without a known offset that appear in a single put."""
        open_ = [each.effect for each in items if each.effect.offset < 0]
        wanted = {digest for effect in open_ for digest in cut(effect.digests)}
        puts = (each for each in self.operations if each.kind in ("put", "publish"))
        count = Counter(each for put in puts for each in cut(put.digests) if each in wanted)
        return {digest for digest, puts in count.items() if puts == 1}

    def _items(self, operation: Operation, number: int, *, loose: bool) -> list[Item]:
        epoch, due = operation.topic_id or self._only, due_of(operation)
        match operation.kind:
            case "publish":
                # Its topic may have ended with its source, before the only known epoch began.
                return self._put_items(operation, operation.topic_id, number)
            case "put":
                return self._put_items(operation, epoch, number)
            case "get":
                return [] if loose else [Item(Effect(operation, epoch=epoch), due, due, reads=True)]
            case "look" | "scan" | "attach" | "seek":
                if loose or not (operation.done or absent(operation)):
                    return []
                seen = Effect(operation, epoch=epoch, put_before=self._first_put <= due)
                stage = (epoch, operation.next) if epoch and operation.next >= 0 else None
                return [Item(seen, operation.call, due, reads=True, stage=stage)]
            case "subscribe" | "unsubscribe" | "create" | "delete" | "policy":
                effect = Effect(operation, epoch=epoch, put_before=self._first_put <= due)
                items = command_items(operation, effect, loose=loose)
                # If the answer does not fit, an earlier copy may have had the effect.
                return [item._replace(twin=item.must and len(items) > 1) for item in items]
            case _:
                return []

    def _put_items(self, put: Operation, epoch: int, number: int) -> list[Item]:
        if put.refused and put.error not in PERHAPS_STORED:
            return []  # no message of this put is in the topic
        due = due_of(put) if put.done else inf
        effect = Effect(put, put.done, put.digests, put.offset if put.done else -1, epoch)
        if put.kind == "publish":
            # The record of a publish survives the deletion of the topic.
            return [Item(effect, put.call, due, put.done)]
        chain = ("put", put.client)
        stage = (epoch, effect.offset) if epoch and effect.offset >= 0 else None
        if not any(each.call <= due and put.call <= due_of(each) for each in self._enders):
            return [Item(effect, put.call, due, put.done, chain, stage=stage)]
        # If the topic was deleted before the answer came, the client repeats the put in the next.
        items = [Item(effect._replace(double=number), put.call, due, chain=chain, stage=stage)]
        again = Effect(put, False, put.digests, double=number)
        # Unanswered puts are interchangeable if none of their messages was seen.
        unseen = not put.done and self._seen.isdisjoint(cut(put.digests))
        like = put.messages if unseen else None
        rank = -put.messages if unseen else 0  # try long puts first, because short ones fit later
        twin = Item(
            again,
            put.call,
            due,
            must=False,
            often=True,
            rank=rank,
            guess=put.done,
            like=like,
            spends=number,
        )
        return [*items[: put.done], twin]


def with_publishes(operations: History) -> History:
    """Merge all publish requests for one number of a source, which is published only once."""
    staged: dict[tuple[str, int, str], bytes] = {}
    published: dict[tuple[str, int], Operation] = {}
    rest: History = []
    for each in operations:
        if each.kind == "stage":
            staged.setdefault((each.source, each.number, each.parts[0]), each.digests)
        elif each.kind != "publish":
            rest.append(each)
        else:
            if each.error == Overloaded.code:  # an earlier attempt may still be in flight
                each = replaced(each, returned=None, error="")
            elif each.refused:
                continue  # no copy of the command had an effect
            key = (each.source, each.number)
            published[key] = joined(published[key], each) if key in published else each
    for (source, number), each in published.items():
        parts = [staged.get((source, number, part), b"") for part in each.parts]
        rest.append(replaced(each, digests=b"".join(parts) or each.digests))
    rest.sort(key=lambda each: each.call)
    return rest


def joined(one: Operation, other: Operation) -> Operation:
    answered = one if one.done and one.offset >= 0 else other
    dues = [each.returned for each in (one, other) if each.returned is not None]
    return replaced(answered, call=min(one.call, other.call), returned=min(dues, default=None))


def joined_runs(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same offsets in as few runs as possible."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def shown_by_epoch(items: Iterable[Item], of_one_put: set[bytes]) -> dict[int, Shown]:
    """Return the evidence that answers give about each epoch of the topic."""
    found: dict[int, Shown] = {}
    for item in items:
        effect, operation = item.effect, item.effect.operation
        if not item.must or operation.error:
            continue
        shown = found.setdefault(effect.epoch, Shown())
        shown.end = max(shown.end, operation.next, operation.offset)
        if operation.kind in ("put", "publish"):
            if effect.offset >= 0:
                shown.claimed.append(effect.offset)
        elif operation.digests:
            shown.got |= operation.kind == "get"
            shown.seen.add(operation.offset, operation.digests)
            for offset, digest in enumerate(cut(operation.digests), operation.offset):
                if digest in of_one_put:
                    shown.places.setdefault(digest, set()).add(offset)
            shown.end = max(shown.end, operation.offset + operation.messages)
    anywhere = found[0].end if 0 in found else 0
    for shown in found.values():
        shown.claimed.sort()
        shown.most = max(shown.end, anywhere)
    return found
