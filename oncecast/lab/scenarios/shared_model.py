"""A slow model of one shared subscription: a list with a record for every message."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncecast.wire.results import GrantMade, Leased, Settled
from oncecast.wire.sharing import (
    EXHAUSTED,
    EXPIRED,
    REJECTED,
    WORKER_LOST,
    Run,
    Settle,
    Shared,
)

FRESH, LEASED, WAITING, BLOCKED, DEAD, DONE = [
    "fresh",
    "leased",
    "waiting",
    "blocked",
    "dead",
    "done",
]
OPEN = (LEASED, WAITING, BLOCKED, DEAD)


@dataclass
class Message:
    key: int
    state: str = FRESH
    deliveries: int = 0
    time: int = 0  # when the lease ends, or when the message becomes due again
    token: int = 0
    worker: str = ""
    why: tuple[str, str] = ("", "")


@dataclass
class SharedModel:
    settings: Shared
    token: int  # the last token that was assigned
    start: int = 0
    messages: list[Message] = field(default_factory=list)
    numbers: dict[str, tuple[int, tuple[Run, ...]]] = field(default_factory=dict)
    letters: list[int] = field(
        default_factory=list
    )  # offsets of the dead letters that were written
    dropped: set[int] = field(default_factory=set)  # offsets removed with the subscription
    removed: bool = False  # whether the subscription was removed
    limits: list[int] = field(default_factory=list)  # all values of `deliveries_max`

    def __post_init__(self) -> None:
        self.limits.append(self.settings.deliveries_max)

    @property
    def deliveries_max(self) -> int:
        """Return the highest limit so far, or 0 for no limit."""
        return 0 if 0 in self.limits else max(self.limits)

    @property
    def cursor(self) -> int:
        for offset, message in enumerate(self.messages):
            if offset >= self.start and message.state != DONE:
                return offset
        return len(self.messages)

    def in_state(self, *states: str) -> list[int]:
        return [o for o, m in enumerate(self.messages) if m.state in states and o >= self.start]

    def held(self, worker: str) -> list[int]:
        return [o for o in self.in_state(LEASED) if self.messages[o].worker == worker]

    def append(self, keys: list[int]) -> None:
        first = len(self.messages)
        self.messages += [Message(key, DONE if self.removed else FRESH) for key in keys]
        if self.removed:
            self.dropped.update(range(first, len(self.messages)))

    # -- subscribe --

    def change(self, settings: Shared) -> bool:
        """Change the settings. Return False if the order by key cannot change now."""
        if settings.by_key != self.settings.by_key and self.in_state(*OPEN):
            return False
        self.settings = settings
        self.limits.append(settings.deliveries_max)
        return True

    def remove(self) -> None:
        """Remove the subscription, with all messages that are not settled."""
        self.removed = True
        self.numbers.clear()
        for offset, message in enumerate(self.messages):
            if message.state != DONE:
                message.state = DONE
                self.dropped.add(offset)

    def create(self, settings: Shared) -> None:
        """Create the subscription again. It starts with the next message."""
        self.removed = False
        self.change(settings)

    # -- lease --

    def lease(
        self, now: int, wants: tuple[tuple[str, int], ...], gone: tuple[str, ...], known: int
    ) -> Leased:
        """Lease messages. The leader has sent the keys of `known` fresh messages."""
        for offset in self.in_state(LEASED):
            if self.messages[offset].time <= now:
                self._back(offset, now, None, (EXPIRED, ""))
        for worker in gone:
            for offset in self.held(worker):
                self._back(offset, now, None, (WORKER_LOST, ""))
        rooms = {name: window - len(self.held(name)) for name, window in wants}
        rooms = {name: room for name, room in rooms.items() if room > 0}
        taken = self._take(sum(rooms.values()), now, known)
        shares = dict.fromkeys(rooms, 0)
        order = sorted(rooms, key=lambda name: rooms[name])
        for at in range(sum(rooms.values()) * len(rooms)):
            name = order[at % len(order)]
            if sum(shares.values()) < len(taken) and shares[name] < rooms[name]:
                shares[name] += 1
        grants = []
        for name, share in shares.items():
            if share:
                mine, taken = taken[:share], taken[share:]
                self.token += 1
                for offset in mine:
                    message = self.messages[offset]
                    message.state, message.worker, message.token = LEASED, name, self.token
                    message.deliveries += 1
                    message.time = now + self.settings.lease_us
                self.numbers.setdefault(name, (0, ()))
                grants.append(GrantMade(name, self.token, tuple(runs(mine))))
        return Leased(tuple(grants))

    def _take(self, count: int, now: int, known: int) -> list[int]:
        left = min(count, self.settings.in_flight_max - len(self.in_state(LEASED)))
        waiting = [o for o in self.in_state(WAITING) if self.messages[o].time <= now]
        waiting.sort(key=lambda o: (self.messages[o].time, o))
        taken = waiting[: max(left, 0)]
        fresh = self.in_state(FRESH)
        for offset in fresh[:known] if self.settings.by_key else fresh:
            if len(taken) >= left:
                break
            if self._key_is_taken(offset):
                self.messages[offset].state = BLOCKED
            else:
                taken.append(offset)
                self.messages[offset].state = LEASED
        return taken

    def _key_is_taken(self, offset: int) -> bool:
        key = self.messages[offset].key
        earlier = [self.messages[o].key for o in self.in_state(*OPEN) if o < offset]
        return self.settings.by_key and key != 0 and key in earlier

    # -- settle --

    def settle(self, settle: Settle, now: int) -> Settled:
        number, stale = self.numbers.get(settle.worker, (0, ()))
        if number and settle.number <= number:
            return Settled(self.cursor, stale if settle.number == number else ())
        refused: list[tuple[int, int]] = []
        for run in settle.accept:
            for offset in self._current(settle, run, refused):
                self.done(offset)
        for token, first, count, delay, reason in settle.release:
            for offset in self._current(settle, (token, first, count), refused):
                chosen = None if delay < 0 else delay
                self._back(offset, now, chosen, (EXHAUSTED, reason))
        for token, first, count, reason in settle.reject:
            for offset in self._current(settle, (token, first, count), refused):
                self.messages[offset].state, self.messages[offset].why = DEAD, (REJECTED, reason)
        for run in settle.unused:
            for offset in self._current(settle, run, refused):
                message = self.messages[offset]
                message.state, message.time = WAITING, 0
                message.deliveries -= 1
        for run in settle.renew:
            for offset in self._current(settle, run, refused):
                self.messages[offset].time = now + self.settings.lease_us
        if settle.leave:
            for offset in self.held(settle.worker):
                self._back(offset, now, None, (WORKER_LOST, ""))
        stale = tuple((token, first, count) for token, first, count in token_runs(refused))
        if settle.worker in self.numbers:
            self.numbers[settle.worker] = settle.number, stale
        return Settled(self.cursor, stale)

    def _current(self, settle: Settle, run: Run, refused: list[tuple[int, int]]) -> list[int]:
        token, first, count = run
        mine = []
        for offset in range(first, first + count):
            held = offset in self.held(settle.worker)
            if held and self.messages[offset].token == token:
                mine.append(offset)
            else:
                refused.append((token, offset))
        return mine

    def _back(self, offset: int, now: int, delay: int | None, why: tuple[str, str]) -> None:
        message, settings = self.messages[offset], self.settings
        if settings.deliveries_max and message.deliveries >= settings.deliveries_max:
            message.state, message.why = DEAD, why
            return
        if delay is None:
            delay = settings.backoff_min_us
            for _ in range(message.deliveries - 1):
                delay = min(2 * delay, settings.backoff_max_us)
            delay = min(delay, settings.backoff_max_us)
        message.state, message.time = WAITING, now + delay

    def done(self, offset: int) -> None:
        self.messages[offset].state = DONE
        for later in self.in_state(BLOCKED):
            same = self.messages[later].key == self.messages[offset].key
            if same and not self._key_is_taken(later):
                self.messages[later].state, self.messages[later].time = WAITING, 0

    def bury(self, offsets: tuple[int, ...]) -> None:
        for offset in offsets:
            assert self.messages[offset].state == DEAD
            self.letters.append(offset)
            self.done(offset)

    def shift(self, by: int) -> None:
        """Move all deadlines, because the clock was corrected. 0 means at once."""
        for message in self.messages:
            if message.state == LEASED:
                message.time += by
            elif message.state == WAITING and message.time:
                message.time = max(message.time + by, 0)

    def seek(self, offset: int) -> None:
        self.token += 1
        self.start = offset
        for at, message in enumerate(self.messages):
            if at >= offset or message.state in OPEN:
                self.messages[at] = Message(message.key, DONE if at < offset else FRESH)


def runs(offsets: list[int]) -> list[tuple[int, int]]:
    return [(first, count) for _, first, count in token_runs([(0, each) for each in offsets])]


def token_runs(pairs: list[tuple[int, int]]) -> list[Run]:
    found: list[Run] = []
    for token, offset in pairs:
        if found and found[-1][0] == token and offset == found[-1][1] + found[-1][2]:
            found[-1] = (token, found[-1][1], found[-1][2] + 1)
        else:
            found.append((token, offset, 1))
    return found
