"""Turns the operations on one topic into items for a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import TypeAlias

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
from oncecast.history.windows import Windows, lacks_epoch, limited, with_epochs

Narrowed: TypeAlias = tuple[list[Item], dict[int, Shown], list[tuple[int, int]]]
PERHAPS_STORED = (Fenced.code, Forgotten.code)  # refusals of puts that may still be stored


class TopicPart(Part):
    def __init__(self, topic: str, operations: History) -> None:
        super().__init__(f"topic {topic!r}", with_publishes(operations))
        puts = [each.call for each in self.operations if each.kind in ("put", "publish")]
        # The time of the first put, which may create the topic.
        self._first_put = min(puts, default=inf)
        self._enders = [each for each in self.operations if each.kind in ("delete", "unsubscribe")]
        seen = (each for each in self.operations if each.kind not in ("put", "publish"))
        self._seen: dict[bytes, set[int]] = {}  # epochs of the answers that show a message
        for each in seen:
            for digest in cut(each.digests):
                self._seen.setdefault(digest, set()).add(each.topic_id)
        epochs = {each.topic_id for each in self.operations if each.topic_id}
        # If the topic never ends, all operations belong to its only epoch.
        self._only = min(epochs) if not self._enders and len(epochs) == 1 else 0

    def problem(self, loose: frozenset[int] = NONE, *, narrow: bool = True) -> Problem:
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
        shown, limits = self._shown(items), None
        if narrow and not wild:
            items, shown, limits = self._narrowed(items, shown)
        named = {each.effect.epoch for each in items}.union(wild)
        model = TopicModel(shown, runs, named, limits)
        return Problem(items, topic_model.ABSENT, model)

    def _narrowed(self, items: list[Item], shown: dict[int, Shown]) -> Narrowed:
        windows = Windows(items, shown)
        items = windows.narrow()
        if any(map(lacks_epoch, items)):
            items = with_epochs(items, shown, windows.spans())
            shown = self._shown(items)
            windows = Windows(items, shown)
            items = windows.narrow()
        return items, shown, limited(items, shown, windows.spans())

    def _shown(self, items: list[Item]) -> dict[int, Shown]:
        return shown_by_epoch(items, self._of_one_put(items))

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
                # The publish may be in an earlier epoch of the topic, which ended along with the
                # source.
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
        # If the topic was deleted before the answer came, the client repeats the put in the next
        # epoch.
        items = [Item(effect._replace(double=number), put.call, due, chain=chain, stage=stage)]
        again = Effect(put, False, put.digests, double=number)
        like = put.messages if self._is_unseen(put) else None
        rank = -put.messages if like else 0  # try long puts first, because short ones fit later
        # The put happens in an earlier epoch than its answer, and so before it is due.
        earlier = bool(put.done and put.topic_id)
        twin = Item(
            again,
            put.call,
            inf if earlier else due,
            must=False,
            often=True,
            rank=rank,
            guess=put.done and not like,
            like=like,
            spends=number,
            last=(put.topic_id, -1) if earlier else None,
        )
        return [*items[: put.done], twin]

    def _is_unseen(self, put: Operation) -> bool:
        """Return whether the put's messages appear in no answer except its own.

        Another put with the same number of messages can then replace this one.
        """
        if put.done and not put.topic_id:
            return False
        epochs = (self._seen.get(digest, NONE) for digest in cut(put.digests))
        if put.done:
            return all(epoch >= put.topic_id for each in epochs for epoch in each)
        return not any(epochs)


def with_publishes(operations: History) -> History:
    """Merge all publish requests for one number of a source, which is published only once.

    After a drop, the number and the names of its parts may be used again.
    """
    life_of = numbers_in_use(operations)
    staged: dict[tuple[str, int, int, str], bytes] = {}
    published: dict[tuple[str, int, int], Operation] = {}
    rest: History = []
    for each in operations:
        key = (each.source, each.number, life_of(each))
        if each.kind == "stage":
            staged.setdefault((*key, each.parts[0]), each.digests)
        elif each.kind == "drop":
            continue
        elif each.kind != "publish":
            rest.append(each)
        else:
            if each.error == Overloaded.code:  # an earlier attempt may still be in flight
                each = replaced(each, returned=None, error="")
            elif each.refused:
                continue  # no copy of the command had an effect
            published[key] = joined(published[key], each) if key in published else each
    for key, each in published.items():
        parts = [staged.get((*key, part), b"") for part in each.parts]
        rest.append(replaced(each, digests=b"".join(parts) or each.digests))
    rest.sort(key=lambda each: each.call)
    return rest


def numbers_in_use(operations: History) -> Callable[[Operation], int]:
    """Return a function that counts the drops of an operation's number before its call."""
    drops: dict[tuple[str, int], list[float]] = {}
    for each in operations:
        if each.kind == "drop" and each.done:
            drops.setdefault((each.source, each.number), []).append(due_of(each))

    def life_of(operation: Operation) -> int:
        known = drops.get((operation.source, operation.number), ())
        return sum(time <= operation.call for time in known)

    return life_of


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
        shown.firm |= operation.kind != "get"
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
