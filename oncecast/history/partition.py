"""Cut a history into the objects that it is about, and each into items that can be searched.

A topic and each of its subscriptions are objects of their own. An operation may be about several:
a look shows the end of the topic to the one, and a cursor to each of the others.

Commands are sent again until they are answered. So some things may have happened though the answer
says otherwise: a call that was refused, or found everything done already, may have done it itself
in an earlier attempt; and one that has no identity (create, delete, subscribe, unsubscribe, set a
policy, seek) may have been done once more, if others undid it while it was under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace as replaced

from oncecast.history import subscription_model, topic_model
from oncecast.history.operation import NO_SUCH_TOPIC, NOT_SUBSCRIBED, History, Operation
from oncecast.history.search import Item, Model
from oncecast.history.subscription_model import Move, SubscriptionModel
from oncecast.history.topic_model import Effect, Shown, TopicModel

ABSENT_CODES = (NO_SUCH_TOPIC, NOT_SUBSCRIBED)


class Problem(NamedTuple):
    """One object: is there an order of its items?"""

    name: str
    items: list[Item]
    initial: Any
    model: Model


def by_topic(history: History) -> dict[str, History]:
    found: dict[str, History] = {}
    for operation in history:
        found.setdefault(operation.topic, []).append(operation)
    return found


# -- topics --


def topic_problem(topic: str, operations: History) -> Problem:
    operations = with_publishes(operations)
    enders = [each for each in operations if each.kind in ("delete", "unsubscribe")]
    lives = {each.life for each in operations if each.life}
    # Without an end there is one life, and what was not told its life was in that one.
    only = min(lives) if not enders and len(lives) == 1 else 0
    born = min((each.call for each in operations if each.kind in ("put", "publish")), default=inf)
    items: list[Item] = []
    for number, operation in enumerate(operations, 1):
        life = operation.life or only
        match operation.kind:
            case "put" | "publish":
                items += put_items(operation, life, number, enders)
            case "get":
                due = due_of(operation)
                items.append(Item(Effect(operation, life=life), due, due, reads=True))
            case "look" | "scan" | "attach" | "seek":
                if operation.done or absent(operation):
                    seen = Effect(operation, life=life, put_before=born <= due_of(operation))
                    items.append(Item(seen, operation.call, due_of(operation), reads=True))
            case "subscribe" | "unsubscribe" | "create" | "delete" | "policy":
                effect = Effect(operation, life=life, put_before=born <= due_of(operation))
                items += command_items(operation, effect, effect._replace(life=only), operations)
            case _:
                pass
    model = TopicModel(shown_by_life(items))
    return Problem(f"topic {topic!r}", items, topic_model.ABSENT, model)


def with_publishes(operations: History) -> History:
    """Join what was asked for one number of a source: it is published once, whoever asks."""
    staged: dict[tuple[str, int, str], bytes] = {}
    published: dict[tuple[str, int], Operation] = {}
    rest: History = []
    for each in operations:
        if each.kind == "stage":
            staged.setdefault((each.source, each.number, each.parts[0]), each.digests)
        elif each.kind != "publish":
            rest.append(each)
        elif not each.refused:
            key = (each.source, each.number)
            published[key] = joined(published[key], each) if key in published else each
    for (source, number), each in published.items():
        parts = [staged.get((source, number, part), b"") for part in each.parts]
        rest.append(replaced(each, digests=b"".join(parts)))
    rest.sort(key=lambda each: each.call)
    return rest


def joined(one: Operation, other: Operation) -> Operation:
    told = one if one.done and one.offset >= 0 else other
    dues = [each.returned for each in (one, other) if each.returned is not None]
    return replaced(told, call=min(one.call, other.call), returned=min(dues, default=None))


def put_items(put: Operation, life: int, number: int, enders: History) -> list[Item]:
    if put.refused and put.error != "fenced":
        return []  # nothing of it is in the topic
    due = due_of(put) if put.done else inf
    told = Effect(put, put.done, put.digests, put.offset if put.done else -1, life)
    if put.kind == "publish":
        # That it was done is remembered, whatever becomes of the topic.
        return [Item(told, put.call, due, put.done)]
    if not any(each.call <= due and put.call <= due_of(each) for each in enders):
        return [Item(told, put.call, due, put.done, ("put", put.client))]
    # If the topic was deleted before the answer came, it is put again into the next one.
    items = [Item(told._replace(double=number), put.call, due, chain=("put", put.client))]
    again = Effect(put, False, put.digests, double=number)
    return [*items[: put.done], Item(again, put.call, due, must=False, often=True)]


def shown_by_life(items: Iterable[Item]) -> dict[int, Shown]:
    """Gather what answers show of each life of the topic."""
    found: dict[int, Shown] = {}
    for item in items:
        effect, operation = item.what, item.what.operation
        if not effect.told or operation.error:
            continue
        shown = found.setdefault(effect.life, Shown())
        shown.end = max(shown.end, operation.next, operation.offset)
        if operation.kind in ("put", "publish"):
            if effect.offset >= 0:
                shown.claimed.append(effect.offset)
        elif operation.digests:
            shown.got |= operation.kind == "get"
            shown.seen.add(operation.offset, operation.digests)
            shown.end = max(shown.end, operation.offset + operation.messages)
    anywhere = found[0].end if 0 in found else 0
    for shown in found.values():
        shown.claimed.sort()
        shown.most = max(shown.end, anywhere)
    return found


def command_items(
    operation: Operation, told: Any, again: Any, operations: Iterable[Operation]
) -> list[Item]:
    """A command that may be done twice: as it was told, or once more while it is under way."""
    if operation.refused and operation.kind not in ("create", "policy"):
        return []
    due = due_of(operation)
    silent = again._replace(operation=replaced(operation, life=0), told=False)
    items = [Item(told, operation.call, due)] if operation.done else []
    if not operation.done or any(undoes(each, operation) for each in operations):
        rank = RANKS.index(operation.kind)
        items.append(Item(silent, operation.call, due, must=False, often=True, rank=rank))
    return items


RANKS = ("put", "subscribe", "create", "policy", "unsubscribe", "delete")  # what ends most is last
UNDONE_BY = {
    "create": ("delete", "unsubscribe"),
    "subscribe": ("delete", "unsubscribe"),
    "delete": ("create", "subscribe", "put", "publish"),
    "unsubscribe": ("subscribe", "create"),
    "policy": ("policy", "delete", "unsubscribe"),
    "seek": ("seek", "subscribe"),
}


def undoes(other: Operation, operation: Operation) -> bool:
    """Return whether `other` may have been done while `operation` was under way."""
    if other is operation or other.kind not in UNDONE_BY[operation.kind]:
        return False
    return other.call <= due_of(operation) and operation.call <= due_of(other)


# -- subscriptions --


def subscription_problems(topic: str, operations: History) -> list[Problem]:
    names = dict.fromkeys(each.subscription for each in operations if each.subscription)
    drops = min((each.call for each in operations if drops_unread(each)), default=inf)
    return [subscription_problem(topic, name, operations, drops) for name in names]


def subscription_problem(topic: str, name: str, operations: History, drops: float = inf) -> Problem:
    own = [each for each in operations if each.subscription == name]
    # Epochs of which nobody was told begin with these.
    silent = [each for each in own if each.kind in ("attach", "seek") and unsure(each)]
    begins = min((each.call for each in silent), default=inf)
    told = {each.epoch for each in own if each.kind == "seek" and each.done}
    model = SubscriptionModel(told)
    deletes = [each for each in operations if each.kind == "delete"]
    acks = acks_of(own, model)
    items: list[Item] = []
    for operation in (*own, *deletes):
        due = due_of(operation)
        move = Move(operation, unknown=begins <= due)
        match operation.kind:
            case "attach":
                if operation.done or absent(operation):
                    items.append(Item(move, operation.call, due))
                elif operation.start is not None:
                    seek = replaced(operation, kind="seek", error="")
                    items.append(Item(Move(seek, told=False), operation.call, must=False))
            case "moved":
                call = due if operation.epoch in told else min(begins, due)
                items.append(Item(move, call, due, reads=True))
            case "ack" | "leave":
                if confirmed(operation):
                    items.append(Item(move, acks[id(operation)], due, reads=True))
            case "seek":
                items += seek_items(operation, move, own)
            case "subscribe" | "unsubscribe" | "delete":
                items += command_items(operation, move, move, (*own, *deletes))
            case _:
                pass
    hidden = [each for each in own if each.kind in ("attach", "seek")]
    items += look_items(name, operations, hidden, drops)
    what = f"subscription {name!r} of topic {topic!r}"
    return Problem(what, items, subscription_model.ABSENT, model)


def acks_of(own: History, model: SubscriptionModel) -> dict[int, float]:
    """Tell the model of all acks. Return from when on each may have been done, by identity.

    What a reader has acknowledged before need not be told again to be confirmed.
    """
    found: dict[int, float] = {}
    by_reader: dict[tuple[str, int], History] = {}
    for each in own:
        if each.kind in ("ack", "leave"):
            by_reader.setdefault((each.reader, each.epoch), []).append(each)
            model.acknowledged(each.epoch, each.upto, each.call)
        elif each.kind == "attach" and each.done:  # whoever begins there has done with the rest
            model.acknowledged(each.epoch, each.offset, each.call)
    for acks in by_reader.values():
        earliest = inf
        for each in sorted(acks, key=lambda ack: (-ack.upto, ack.call)):
            earliest = min(earliest, each.call)
            found[id(each)] = earliest
    return found


def confirmed(ack: Operation) -> bool:
    return ack.done and (ack.kind == "leave" or ack.offset >= ack.upto)


def seek_items(seek: Operation, move: Move, own: Iterable[Operation]) -> list[Item]:
    due = due_of(seek)
    items = [Item(move, seek.call, due)] if seek.done or absent(seek) else []
    if not seek.done or any(undoes(each, seek) for each in own):
        silent = Move(replaced(seek, error=""), told=False)
        items.append(Item(silent, seek.call, due, must=False, often=True))
    return items


def look_items(name: str, operations: History, begin: History, drops: float) -> list[Item]:
    """`begin` are those that begin epochs: in vain, again and again, or without being told."""
    items: list[Item] = []
    for each in operations:
        if each.kind not in ("look", "scan") or not (each.done or each.error == NO_SUCH_TOPIC):
            continue
        due = due_of(each)
        first = each.first if drops > due else -1
        unknown = any(
            other.call <= due and (unsure(other) or each.call <= due_of(other)) for other in begin
        )
        move = Move(each, first=first, unknown=unknown)
        if each.views is not None:
            views = [view for view in each.views if view.name == name]
            move = move._replace(seen=bool(views))
            if views:
                move = move._replace(cursor=views[0].cursor, epoch=views[0].epoch)
        elif each.done and first <= 0:
            continue
        items.append(Item(move, each.call, due, reads=True))
    return items


def drops_unread(operation: Operation) -> bool:
    return operation.policy is not None and operation.policy.drop_unread


def unsure(operation: Operation) -> bool:
    return not operation.done or operation.already


def absent(operation: Operation) -> bool:
    """Return whether a node, and not the session, has said that there is no such thing."""
    if operation.error not in ABSENT_CODES:
        return False
    return operation.kind != "seek" or not operation.reader


def due_of(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned
