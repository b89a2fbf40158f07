"""A model of the possible answers of a topic: an append-only log per epoch, and subscriptions.

The state contains everything that answers can distinguish. Some changes are not operations: opening
a producer creates the topic, and an unused topic ends with its last producer. The model assumes
such a change where an answer requires it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import inf
from typing import NamedTuple, TypeAlias

from oncecast.history.operation import (
    DIGEST_BYTES,
    NO_SUCH_TOPIC,
    NOT_SUBSCRIBED,
    Operation,
    cut,
)
from oncecast.history.search import Stage
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset
from oncecast.wire.retention import DEFAULT, Policy

UNKNOWN = bytes(DIGEST_BYTES)  # the digest of an unknown message
# A safe prime: powers of two repeat only after 2**62 terms, so swapping messages changes the sum.
MODULUS = 2**64 - 1469


class Log:
    """The digests of the messages of a topic. Longer logs share the bytes of shorter logs.

    The messages before `base` are unknown. Logs are equal if they have the same messages, no matter
    how the messages were divided into puts.
    """

    __slots__ = ("_base", "_bytes", "_sum", "next")

    def __init__(self, data: bytearray, base: int = 0, next: int = 0, sum: int = 0) -> None:
        self._bytes, self._base, self._sum = data, base, sum
        self.next = next

    def append(self, digests: bytes) -> Log:
        data, end = self._bytes, (self.next - self._base) * DIGEST_BYTES
        behind = end + len(digests)
        if len(data) == end:
            data += digests
        # Another branch of the search has appended to these bytes.
        elif data[end:behind] != digests:
            data = data[:end] + digests
        next_ = self.next + len(digests) // DIGEST_BYTES
        sum_ = ((self._sum << 8 * len(digests)) + int.from_bytes(digests, "big")) % MODULUS
        return Log(data, self._base, next_, sum_)

    def lengthened(self, next: int) -> Log:
        """Return the log extended to `next` with unknown messages."""
        if self._base == self.next:
            return Log(bytearray(), next, next)
        return self.append(UNKNOWN * (next - self.next))

    def has(self, offset: int, digests: bytes) -> bool:
        """Return whether the log has these messages, as far as they are known."""
        unknown = max(0, self._base - offset)
        if unknown:
            offset, digests = offset + unknown, digests[unknown * DIGEST_BYTES :]
        begin = (offset - self._base) * DIGEST_BYTES
        there = self._bytes[begin : begin + len(digests)]
        if there == digests or offset + len(digests) // DIGEST_BYTES > self.next:
            return there == digests
        pairs = zip(cut(there), cut(digests), strict=True)
        return all(known in (UNKNOWN, given) for known, given in pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and (self.next, self._sum) == (other.next, other._sum)

    def __hash__(self) -> int:
        return hash((self.next, self._sum))


class TopicState(NamedTuple):
    exists: bool
    epoch: int  # id of the topic, or 0 if no answer names it
    log: Log
    first: int  # the topic keeps no message below this offset
    top: int  # upper bound of the first kept offset, or FREE
    declared: bool
    policy: Policy
    names: frozenset[str]  # names of the subscriptions
    doubled: frozenset[int]  # puts of this epoch that may happen again in a later epoch
    ended: int  # the last epoch that has ended
    past: tuple[tuple[int, Log], ...]  # logs of ended epochs

    @property
    def next(self) -> int:
        return self.log.next

    @property
    def idle(self) -> bool:
        """Return whether the topic may end without a delete."""
        return not (self.declared or self.names or self.policy.retains)


States: TypeAlias = tuple[TopicState, ...]

NO_NAMES: frozenset[str] = frozenset()
NOTHING: frozenset[int] = frozenset()
FREE = -1
LAST = 2**63  # longer than any log
ABSENT = TopicState(False, 0, Log(bytearray()), 0, FREE, False, DEFAULT, NO_NAMES, NOTHING, 0, ())


class Effect(NamedTuple):
    """The effect of an operation on a topic. An `answered` effect must fit its answer."""

    operation: Operation
    answered: bool = True
    digests: bytes = b""
    offset: int = -1
    epoch: int = 0
    put_before: bool = False  # whether a producer may have created the topic by then
    double: int = 0  # if not 0, the number of a put that may happen in several epochs

    def silent(self) -> Effect:
        return self._replace(answered=False, epoch=0)


class Seen:
    """The messages of one epoch that appeared in deliveries or scans."""

    def __init__(self) -> None:
        self._digests, self._known = bytearray(), bytearray()

    def add(self, offset: int, digests: bytes) -> None:
        end = offset + len(digests) // DIGEST_BYTES
        if end > len(self._known):
            self._digests.extend(bytes(DIGEST_BYTES * (end - len(self._known))))
            self._known.extend(bytes(end - len(self._known)))
        self._digests[DIGEST_BYTES * offset : DIGEST_BYTES * end] = digests
        self._known[offset:end] = b"\1" * (end - offset)

    def has(self, offset: int, digests: bytes) -> bool:
        """Return whether the first of these messages was seen at this offset."""
        known = offset < len(self._known) and self._known[offset]
        begin = DIGEST_BYTES * offset
        return bool(known) and self._digests[begin : begin + 4] == digests[:DIGEST_BYTES]

    def any(self, offset: int, digests: bytes) -> bool:
        """Return whether any message was seen at these offsets."""
        return 1 in self._known[offset : offset + len(digests) // DIGEST_BYTES]

    def fits(self, offset: int, digests: bytes) -> bool:
        """Return whether no other message was seen at these offsets."""
        begin, end = DIGEST_BYTES * offset, DIGEST_BYTES * offset + len(digests)
        if self._digests[begin:end] == digests:
            return True
        for at in range(len(digests) // DIGEST_BYTES):
            known = offset + at < len(self._known) and self._known[offset + at]
            low, high = DIGEST_BYTES * at, DIGEST_BYTES * (at + 1)
            if known and self._digests[begin + low : begin + high] != digests[low:high]:
                return False
        return True


class Shown:
    """The evidence that answers give about one epoch of a topic."""

    def __init__(self) -> None:
        self.claimed: list[int] = []  # offsets of answered puts, sorted
        self.end = 0  # minimum length of the log
        self.publish = 0  # the highest offset of a publish that may belong to this epoch
        self.most = 0  # maximum length of the log, because some answers lack the epoch
        self.firm = False  # whether the epoch must exist, whatever unanswered operations did
        self.got = False  # whether readers may get its messages after the epoch has ended
        self.seen = Seen()
        self.places: dict[bytes, set[int]] = {}  # offsets of messages that only one put has

    def contradicts(self, offset: int, digests: bytes) -> bool:
        """Return whether answers show that this epoch has no such put at this offset."""
        count = len(digests) // DIGEST_BYTES
        if not self.seen.fits(offset, digests):
            return True
        at = bisect_left(self.claimed, offset)
        return at < len(self.claimed) and self.claimed[at] < offset + count

    def claims(self, offset: int) -> bool:
        """Return whether an answered put begins at this offset."""
        at = bisect_left(self.claimed, offset)
        return at < len(self.claimed) and self.claimed[at] == offset

    def elsewhere(self, offset: int, digests: bytes) -> bool:
        """Return whether one of these messages was seen only at other offsets."""
        for at, digest in enumerate(cut(digests), offset):
            places = self.places.get(digest)
            if places is not None and at not in places:
                return True
        return False


NOT_SHOWN = Shown()


class TopicModel:
    """The rules of a topic. `shown` has the evidence for each known epoch.

    `named` has all epochs that operations name. `wild` has the runs of offsets, by epoch, that
    optional puts may have written. `limits` has the maximum length of the log in an epoch that no
    answer names, for each named epoch that it may follow.
    """

    def __init__(
        self,
        shown: dict[int, Shown],
        wild: dict[int, list[tuple[int, int]]],
        named: set[int],
        limits: list[tuple[int, int]] | None = None,
    ) -> None:
        self.shown, self._wild = shown, wild
        self._epochs = sorted(named - {0})
        self._got = {epoch for epoch in shown if shown[epoch].got}
        self._anywhere = shown[0].end if 0 in shown else 0
        self._limits = limits or [(0, self._anywhere)]

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

    def late(self, state: TopicState, effect: Effect) -> bool:
        """Return whether the log or the epoch is already past the operation, as both only grow."""
        operation = effect.operation
        if not effect.answered or operation.error or not effect.epoch:
            return False
        over = effect.epoch <= state.ended
        if operation.kind == "get":
            return over
        if over or state.epoch > effect.epoch:
            return True
        if not state.exists or state.epoch != effect.epoch:
            return False
        end = effect.offset if effect.operation.kind in ("put", "publish") else operation.next
        return 0 <= end < state.next

    def guess(self, state: TopicState, effect: Effect, skips: bool) -> bool:
        """Return whether no answer is evidence of the put.

        An answer may show its message. Or an answer may show that the log is longer than it is now,
        so that some put without an offset must come next. Puts of one client are rarely omitted.
        """
        if effect.answered:
            return False
        if effect.operation.kind not in ("put", "publish") or not state.epoch:
            return True
        shown = self.shown.get(state.epoch)
        if shown is None:
            return True
        if shown.seen.any(state.next, UNKNOWN):
            return not shown.seen.has(state.next, effect.digests)
        return skips or state.next >= max(shown.end, shown.publish) or shown.claims(state.next)

    def stage(self, state: TopicState) -> Stage | None:
        """Return the epoch and the length of the log, or None if optional puts may extend it.

        Between two epochs that answers name, return a stage between all of their stages.
        """
        if self._wild:
            return None
        known = state.exists and state.epoch
        return (state.epoch, state.log.next) if known else (state.ended, LAST + 1)

    def spent(self, state: TopicState) -> tuple[TopicState, frozenset[int]]:
        """Return the state without the puts of this epoch that may repeat, and these puts."""
        doubled = state.doubled
        return (state._replace(doubled=NOTHING) if doubled else state), doubled

    # -- epochs --

    def _alive(self, state: TopicState, epoch: int) -> Iterator[TopicState]:
        """Yield the state if the topic exists in this epoch."""
        if state.exists and epoch in (0, state.epoch):
            yield state

    def _absent(self, state: TopicState) -> Iterator[TopicState]:
        """Yield the state without the topic, if it does not exist or may end without a delete."""
        if not state.exists:
            yield state
        elif state.idle and self._may_end(state):
            yield self._ended(state)

    def _ended(self, state: TopicState) -> TopicState:
        state = self._grown(state, self.shown.get(state.epoch, NOT_SHOWN).end)
        past = state.past
        over = (state.epoch, state.log)
        # Equal logs count once. Otherwise an unanswered put could make the state grow without end.
        if state.next and (state.epoch in self._got or 0 in self._got) and over not in past:
            past = (*past, over)
        return ABSENT._replace(ended=max(state.ended, state.epoch), past=past)

    def _may_end(self, state: TopicState) -> bool:
        """Return whether the log has everything that answers showed of this epoch."""
        shown = self.shown.get(state.epoch) if state.epoch else None
        return shown is None or self._grown(state, shown.end).next >= shown.end

    def _grown(self, state: TopicState, end: int) -> TopicState:
        """Return the state with its log extended to `end`, if optional puts allow it."""
        if state.next >= end or not self._wild:
            return state
        next_ = state.next
        for next_ in self._wild_ends(state):
            if next_ >= end:
                return state._replace(log=state.log.lengthened(end))
        return state._replace(log=state.log.lengthened(next_)) if next_ > state.next else state

    def _wild_ends(self, state: TopicState) -> Iterator[int]:
        """Yield the possible lengths of the log after each run of optional puts."""
        end, reached = state.next, -1
        epochs = (state.epoch, 0) if state.epoch else tuple(self._wild)
        while self._wild and end > reached:
            reached = end
            for runs in (self._wild.get(epoch, []) for epoch in epochs):
                at = bisect_right(runs, (reached, inf)) - 1
                end = max(end, runs[at][1] if at >= 0 else 0)
            if end > reached:
                yield end

    def _created(self, state: TopicState, epoch: int) -> Iterator[TopicState]:
        """Yield a new epoch, if the topic does not exist or may end without a delete."""
        for over in self._absent(state):
            for each in (epoch,) if epoch else self._next_epochs(over.ended):
                if each == 0 or each > over.ended:
                    yield over._replace(exists=True, epoch=each, log=Log(bytearray()))

    def _made(self, state: TopicState, epoch: int) -> Iterator[TopicState]:
        yield from self._alive(state, epoch)
        yield from self._created(state, epoch)

    def _next_epochs(self, ended: int) -> Iterator[int]:
        """Yield the epochs that may come next, and 0 for one that no answer names.

        A later epoch may come next only if no answer of the epochs before it needs them.
        """
        for epoch in self._epochs[bisect_right(self._epochs, ended) :]:
            yield epoch
            shown = self.shown.get(epoch)
            if shown is not None and shown.firm:
                break
        yield 0

    # -- messages --

    def _append(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        epoch = effect.epoch
        states = self._made(state, epoch) if epoch or effect.answered else self._any_epoch(state)
        for now in states:
            if effect.double in now.doubled or too_late(now, effect):
                continue
            if effect.answered and not kept_fits(now, effect.operation.kept):
                continue
            doubled = now.doubled | {effect.double} if effect.double else now.doubled
            for at in self._before(now, effect):
                yield at._replace(log=at.log.append(self._noted(at, effect)), doubled=doubled)

    def _before(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        """Yield the states with a log that the put may extend."""
        if effect.offset >= 0:
            grown = self._grown(state, effect.offset)
            if effect.offset == grown.next:
                yield grown
            return
        if self._free(state, effect):
            yield state
        for end in self._wild_ends(state):
            grown = self._grown(state, end)
            if self._free(grown, effect):
                yield grown

    def _noted(self, state: TopicState, effect: Effect) -> bytes:
        """Return the digests, with UNKNOWN for messages that no answer shows."""
        if effect.answered:
            return effect.digests
        seen = (self.shown.get(state.epoch, NOT_SHOWN).seen, self.shown.get(0, NOT_SHOWN).seen)
        return b"".join(
            digest if any(each.any(offset, digest) for each in seen) else UNKNOWN
            for offset, digest in enumerate(cut(effect.digests), state.next)
        )

    def _any_epoch(self, state: TopicState) -> Iterator[TopicState]:
        yield from self._alive(state, 0)
        for created in self._created(state, 0):
            if created.epoch or self._longest(created):
                yield created

    def _free(self, state: TopicState, effect: Effect) -> bool:
        """Return whether a put without an offset may come next in the log and is useful."""
        begin = state.next
        if begin >= self._longest(state) and not effect.answered:
            return False
        if not state.epoch:
            return True  # evidence without an epoch may belong to another epoch
        shown = self.shown.get(state.epoch, NOT_SHOWN)
        at = bisect_left(shown.claimed, begin)
        end = begin + len(effect.digests) // DIGEST_BYTES
        if at < len(shown.claimed) and shown.claimed[at] < end:
            return False
        if shown.places and shown.elsewhere(begin, effect.digests):
            return False  # the message would be in the log twice
        return shown.seen.fits(begin, effect.digests)

    def _longest(self, state: TopicState) -> int:
        """Return the maximum length of the log that answers may show."""
        if not state.epoch:
            return self._limits[bisect_right(self._limits, (state.ended, inf)) - 1][1]
        shown = self.shown.get(state.epoch)
        return self._anywhere if shown is None else shown.most

    def _get(self, state: TopicState, get: Operation) -> States:
        """Check a delivery, which may arrive after its epoch has ended."""
        if state.exists:
            for now in self._alive(state, get.topic_id):
                now = self._grown(now, max(get.offset + get.messages, get.next))
                if holds(now.log, get):
                    return (now,)
        ended = (epoch for epoch, log in state.past if holds(log, get))
        if any(not get.topic_id or epoch == get.topic_id for epoch in ended):
            return (state,)
        # An optional put may have created the topic, and the topic may have ended since.
        alive = any(self._alive(state, get.topic_id))
        runs = (*self._wild.get(get.topic_id, ()), *self._wild.get(0, ()))
        put = any(begin < get.offset + get.messages and get.offset < end for begin, end in runs)
        return (state,) if put and not alive else ()

    # -- answers --

    def _observe(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        operation = effect.operation
        if operation.error == NO_SUCH_TOPIC:
            yield from self._absent(state)
            return
        if operation.error == NOT_SUBSCRIBED:
            if operation.subscription not in state.names:
                yield state
            return
        end = max(operation.next, operation.offset)
        for now in self._alive(state, effect.epoch):
            yield from looked(self._grown(now, end), operation)
        if effect.put_before:
            for created in self._created(state, effect.epoch):
                yield from looked(self._grown(created, end), operation)

    # -- subscriptions --

    def _subscribe(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        operation = effect.operation
        for now in self._reached(state, effect):
            if operation.subscription in now.names:
                if effect.answered and operation.already:
                    yield now
                continue
            if effect.answered and not operation.already:
                now = self._grown(now, operation.offset)
                yield from (with_name(found, operation) for found in landed(now, operation))
            else:
                yield with_name(now, operation)

    def _reached(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        """Yield the topic as it is, or in a new epoch."""
        yield from self._made(state, effect.epoch)

    def _unsubscribe(self, state: TopicState, effect: Effect) -> States:
        operation = effect.operation
        if operation.subscription in state.names:
            return (state._replace(names=state.names - {operation.subscription}),)
        return (state,) if effect.answered and operation.already else ()

    # -- topics --

    def _create(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        operation = effect.operation
        policy = operation.policy or DEFAULT
        if operation.already or not effect.answered:
            for now in self._alive(state, effect.epoch):
                if now.policy == policy and (effect.answered or not now.declared):
                    yield now if now.declared else now._replace(declared=True)
        for created in self._created(state, effect.epoch):
            yield under(created, policy)._replace(declared=True)

    def _delete(self, state: TopicState, effect: Effect) -> States:
        if state.exists:
            return (self._ended(state),) if self._may_end(state) else ()
        return (
            (state,) if effect.answered and (effect.operation.already or effect.put_before) else ()
        )

    def _set_policy(self, state: TopicState, effect: Effect) -> Iterator[TopicState]:
        policy = effect.operation.policy or DEFAULT
        for now in self._alive(state, 0):
            yield under(now, policy)
        if effect.put_before:
            for created in self._created(state, 0):
                yield under(created, policy)


def under(state: TopicState, policy: Policy) -> TopicState:
    """Return the topic with this policy. With `keep_all`, existing messages stay."""
    if state.policy == policy:
        return state
    top = state.top if state.policy.keep_all else state.next
    return state._replace(policy=policy, top=top if policy.keep_all else FREE)


def with_name(state: TopicState, operation: Operation) -> TopicState:
    return state._replace(names=state.names | {operation.subscription})


def too_late(state: TopicState, effect: Effect) -> bool:
    """Return whether the answer to a put shows that it happened in an earlier epoch."""
    put = effect.operation
    over = max(state.epoch, state.ended)
    return not effect.answered and put.done and 0 < put.topic_id <= over


def holds(log: Log, get: Operation) -> bool:
    count = get.messages
    if max(get.offset + count, get.next) > log.next:
        return False
    return log.has(get.offset, get.digests)


def kept_fits(state: TopicState, kept: bool | None) -> bool:
    """Return whether a put may have been answered with this value of `kept`."""
    policy = state.policy
    if kept is None or policy.drop_unread:
        return True
    if state.names or policy.keep_all:
        return kept
    return True if policy.retains else not kept


def looked(state: TopicState, operation: Operation) -> Iterator[TopicState]:
    """Yield the states that fit an answer that describes the topic."""
    if operation.next >= 0 and operation.next != state.next:
        return
    if operation.kind in ("attach", "seek"):
        if operation.subscription not in state.names:
            return
        if operation.kind == "attach" or operation.already:
            yield state
            return
    if operation.policy is not None and operation.policy != state.policy:
        return
    if operation.views is not None and {each.name for each in operation.views} != state.names:
        return
    if operation.messages and not holds(state.log, operation):
        return
    for now in beginning(state, operation.first) if operation.first >= 0 else (state,):
        yield from landed(now, operation) if operation.start is not None else (now,)


def beginning(state: TopicState, first: int) -> Iterator[TopicState]:
    """Yield the state if the kept messages may begin at `first`."""
    top = state.next if state.top == FREE else state.top
    if state.first <= first <= top:
        fixed = first if state.policy.keep_all else FREE
        same = first == state.first and fixed == state.top
        yield state if same else state._replace(first=first, top=fixed)


def landed(state: TopicState, operation: Operation) -> Iterator[TopicState]:
    """Yield the state if `start` may lead to the offset in the answer."""
    offset, start = operation.offset, operation.start
    if not state.first <= offset <= state.next:
        return
    match start:
        case FromNew():
            if offset == state.next:
                yield state
        case FromEarliest():
            yield from beginning(state, offset)
        case FromOffset(asked) if asked < offset:
            yield from beginning(state, offset)
        case FromOffset(asked) if asked > offset:
            if offset == state.next:
                yield state
        case _:
            yield state
