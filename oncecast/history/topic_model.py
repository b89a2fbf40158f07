"""What a topic may answer: an append-only log in each of its lives, and who is subscribed to it.

The state is what answers can tell apart. Some things happen that no operation shows: opening a
producer makes the topic, and a topic that nobody would miss goes with its last producer. The model
lets them happen where an answer needs it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from oncecast.history.operation import (
    DIGEST_BYTES,
    NO_SUCH_TOPIC,
    NOT_SUBSCRIBED,
    Operation,
)
from oncecast.pubsub.commands import FromEarliest, FromNew, FromOffset
from oncecast.pubsub.retention import DEFAULT, Policy


class Log:
    """The digests of messages from offset 0 on. Longer logs share the bytes of shorter ones."""

    __slots__ = ("_bytes", "_chain", "next")

    def __init__(self, data: bytearray | None = None, count: int = 0, chain: int = 0) -> None:
        self._bytes = bytearray() if data is None else data
        self.next = count
        self._chain = chain

    def append(self, digests: bytes) -> Log:
        data, end = self._bytes, self.next * DIGEST_BYTES
        if len(data) > end:  # a log of another branch of the search goes on from here
            data = data[:end]
        data += digests
        count = self.next + len(digests) // DIGEST_BYTES
        return Log(data, count, hash((self._chain, digests)))

    def slice(self, offset: int, count: int) -> bytearray:
        return self._bytes[offset * DIGEST_BYTES : (offset + count) * DIGEST_BYTES]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and (self.next, self._chain) == (other.next, other._chain)

    def __hash__(self) -> int:
        return hash((self.next, self._chain))


class TopicState(NamedTuple):
    exists: bool
    life: int  # 0: not known yet
    log: Log
    first: int  # nothing below it is kept; what is kept may begin higher
    declared: bool
    policy: Policy
    names: frozenset[str]  # of subscriptions
    doubled: frozenset[int]  # puts of this life that might happen once more in another one
    past: tuple[tuple[int, Log], ...]  # lives that have ended

    @property
    def next(self) -> int:
        return self.log.next

    @property
    def idle(self) -> bool:
        """Return whether it may go by itself."""
        return not (self.declared or self.names or self.policy.retains)


States: TypeAlias = tuple[TopicState, ...]

NOBODY: frozenset[str] = frozenset()
NOTHING: frozenset[int] = frozenset()
ABSENT = TopicState(False, 0, Log(), 0, False, DEFAULT, NOBODY, NOTHING, ())


class Effect(NamedTuple):
    """What an operation does to a topic. Only an effect that was `told` has to fit its answer."""

    operation: Operation
    told: bool = True
    digests: bytes = b""
    offset: int = -1
    life: int = 0
    put_before: bool = False  # a producer may have made the topic by then
    double: int = 0  # not 0: a number by which it is known, if it may happen in several lives


class Seen:
    """The messages of one life of a topic that readers were given."""

    def __init__(self) -> None:
        self._digests, self._known = bytearray(), bytearray()

    def add(self, offset: int, digests: bytes) -> None:
        end = offset + len(digests) // DIGEST_BYTES
        if end > len(self._known):
            self._digests.extend(bytes(DIGEST_BYTES * (end - len(self._known))))
            self._known.extend(bytes(end - len(self._known)))
        self._digests[DIGEST_BYTES * offset : DIGEST_BYTES * end] = digests
        self._known[offset:end] = b"\1" * (end - offset)

    def fits(self, offset: int, digests: bytes) -> bool:
        """Return whether nobody was given anything else there."""
        begin, end = DIGEST_BYTES * offset, DIGEST_BYTES * offset + len(digests)
        if self._digests[begin:end] == digests:
            return True
        for at in range(len(digests) // DIGEST_BYTES):
            known = offset + at < len(self._known) and self._known[offset + at]
            part = slice(DIGEST_BYTES * at, DIGEST_BYTES * (at + 1))
            if known and self._digests[begin:end][part] != digests[part]:
                return False
        return True


NOT_SEEN = Seen()


class TopicModel:
    """`seen` and the offsets that puts were told, sorted, are by life."""

    def __init__(self, seen: dict[int, Seen], claimed: dict[int, list[int]]) -> None:
        self._seen, self._claimed = seen, claimed

    def step(self, state: TopicState, effect: Effect) -> States:
        match effect.operation.kind:
            case "put" | "publish":
                return tuple(self._append(state, effect))
            case "get":
                return self._get(state, effect.operation)
            case "look" | "scan" | "attach" | "seek":
                return tuple(self._observe(state, effect))
            case "subscribe":
                return tuple(self._subscribe(state, effect))
            case "unsubscribe":
                return self._unsubscribe(state, effect)
            case "create":
                return tuple(self._create(state, effect))
            case "delete":
                return self._delete(state, effect)
            case "policy":
                return tuple(self._set_policy(state, effect))
            case _:
                raise AssertionError(f"a {effect.operation.kind} has no effect on a topic")

    # -- lives --

    def _alive(self, state: TopicState, life: int) -> Iterator[TopicState]:
        """The state, if the topic exists in this life."""
        if state.exists:
            if life in (0, state.life):
                yield state
            elif not state.life and self._later(state, life):
                yield state._replace(life=life)

    def _newborn(self, state: TopicState, life: int) -> Iterator[TopicState]:
        """A new life, if there is none, or the present one may end by itself."""
        if state.exists and not state.idle:
            return
        if life and not self._later(state, life):
            return
        if state.exists and life and life == state.life:
            return
        yield ABSENT._replace(exists=True, life=life, past=ended(state).past)

    def _later(self, state: TopicState, life: int) -> bool:
        return all(before < life for before, _ in state.past)

    def _made(self, state: TopicState, life: int) -> Iterator[TopicState]:
        yield from self._alive(state, life)
        yield from self._newborn(state, life)

    # -- messages --

    def _append(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        count = len(effect.digests) // DIGEST_BYTES
        for now in self._made(state, effect.life):
            if effect.double in now.doubled:
                continue
            if effect.offset >= 0:
                if effect.offset != now.next:
                    continue
            elif not self._free(now, effect.digests, count):
                continue
            if effect.told and not kept_fits(now, effect.operation.kept):
                continue
            doubled = now.doubled | {effect.double} if effect.double else now.doubled
            yield now._replace(log=now.log.append(effect.digests), doubled=doubled)

    def _free(self, state: TopicState, digests: bytes, count: int) -> bool:
        """Whether a put without a known offset may be at the end of the log."""
        begin = state.next
        claimed = self._claimed.get(state.life, [])
        at = bisect_left(claimed, begin)
        if at < len(claimed) and claimed[at] < begin + count:
            return False
        return self._seen.get(state.life, NOT_SEEN).fits(begin, digests)

    def _get(self, state: TopicState, get: Operation) -> States:
        """What was once in a log stays true: it may arrive after its life has ended."""
        if state.exists:
            for now in self._alive(state, get.life):
                if holds(now.log, get):
                    return (now,)
        if any(
            life in (0, get.life) or not get.life for life, log in state.past if holds(log, get)
        ):
            return (state,)
        return ()

    # -- what is asked --

    def _observe(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        operation = effect.operation
        if operation.error == NO_SUCH_TOPIC:
            if not state.exists:
                yield state
            elif state.idle:
                yield ended(state)
            return
        if operation.error == NOT_SUBSCRIBED:
            if operation.subscription not in state.names:
                yield state
            return
        yield from filter(None, (looked(now, operation) for now in self._alive(state, effect.life)))
        if effect.put_before:
            born = self._newborn(state, effect.life)
            yield from filter(None, (looked(now, operation) for now in born))

    # -- subscriptions --

    def _subscribe(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        operation = effect.operation
        for now in self._made(state, effect.life):
            if operation.subscription in now.names:
                if not effect.told:
                    continue
                if operation.already:
                    yield now
                continue
            if effect.told and not operation.already:
                first = landed(now, operation)
                if first < 0:
                    continue
                now = now._replace(first=first)
            yield now._replace(names=now.names | {operation.subscription})

    def _unsubscribe(self, state: TopicState, effect: Effect) -> States:
        operation = effect.operation
        if operation.subscription in state.names:
            return (state._replace(names=state.names - {operation.subscription}),)
        return (state,) if effect.told and operation.already else ()

    # -- topics --

    def _create(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        operation = effect.operation
        policy = operation.policy or DEFAULT
        if operation.already or not effect.told:
            for now in self._alive(state, effect.life):
                if now.policy == policy and (effect.told or not now.declared):
                    yield now if now.declared else now._replace(declared=True)
        for born in self._newborn(state, effect.life):
            yield born._replace(declared=True, policy=policy)

    def _delete(self, state: TopicState, effect: Effect) -> States:
        if state.exists:
            return (ended(state),)
        return (state,) if effect.told and effect.operation.already else ()

    def _set_policy(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        policy = effect.operation.policy or DEFAULT
        for now in self._alive(state, 0):
            yield now if now.policy == policy else now._replace(policy=policy)
        if effect.put_before:
            for born in self._newborn(state, 0):
                yield born._replace(policy=policy)


def ended(state: TopicState) -> TopicState:
    if not state.exists:
        return state
    return ABSENT._replace(past=(*state.past, (state.life, state.log)))


def holds(log: Log, get: Operation) -> bool:
    count = get.messages
    if max(get.offset + count, get.next) > log.next:
        return False
    return log.slice(get.offset, count) == get.digests


def kept_fits(state: TopicState, kept: bool | None) -> bool:
    """Whether a put may be told that anybody can ever get its messages."""
    policy = state.policy
    if kept is None or policy.drop_unread:
        return True
    if state.names or policy.keep_all:
        return kept
    return True if policy.retains else not kept


def looked(state: TopicState, operation: Operation) -> TopicState | None:
    """The state after an answer that describes it; None if it is not so."""
    if operation.next >= 0 and operation.next != state.next:
        return None
    if operation.kind in ("attach", "seek"):
        if operation.subscription not in state.names:
            return None
        if operation.kind == "attach" or operation.already:
            return state
    if operation.policy is not None and operation.policy != state.policy:
        return None
    if operation.views is not None and {each.name for each in operation.views} != state.names:
        return None
    first = max(state.first, operation.first)
    if first != operation.first and operation.first >= 0:
        return None
    if first > state.next or (first > state.first and state.policy.keep_all):
        return None
    now = state if first == state.first else state._replace(first=first)
    if operation.start is not None:
        first = landed(now, operation)
        if first < 0:
            return None
        now = now if first == now.first else now._replace(first=first)
    if not holds_at(now.log, operation):
        return None
    return now


def holds_at(log: Log, scan: Operation) -> bool:
    count = scan.messages
    if scan.offset + count > log.next:
        return False
    return log.slice(scan.offset, count) == scan.digests


def landed(state: TopicState, operation: Operation) -> int:
    """The first offset that is kept, so that `start` leads to the operation's offset; -1: none."""
    offset, start = operation.offset, operation.start
    low, high = state.first, state.next
    if not low <= offset <= high or start is None:
        return -1
    raised = offset if not state.policy.keep_all else low
    match start:
        case FromNew():
            return low if offset == high else -1
        case FromEarliest():
            return raised if raised == offset else -1
        case FromOffset(asked) if asked < offset:
            return raised if raised == offset else -1
        case FromOffset(asked) if asked > offset:
            return low if offset == high else -1
        case _:
            return low
