"""Hostile clients, which send any frame that a node's codec accepts from a client.

There are three kinds of frames. Some are copies of honest clients' frames. Some have arbitrary
fields of the right types: names, epochs and offsets of honest clients, extreme values, and the
intruder's own names. Some are valid requests on the intruder's own topics, so that it has objects
to misuse.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from random import Random
from typing import Any, ClassVar, get_args

import msgspec
from msgspec import inspect

from oncecast.errors import Malformed
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.lab.scenarios.intruder_rules import MALLORY, OSCAR
from oncecast.node.replica import CLIENTS
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.frames import Answer, Call, ClientCommand, Elsewhere, Fetch, Look, Scan
from oncecast.wire.results import Attached, Opened

CODEC = Codec(CLIENTS, wary=True)
INTS = (0, 1, 2, -1, 2**31, 2**63 - 1, 2**64 - 1, -(2**63))
TEXTS = ("", "x", "x" * 255, "x" * 256, "é" * 128, "x" * 100_000, "\0", "*", "0123456789abcdef")
BYTES = (b"", b"\0" * 16, b"x" * 100_000)
OWN = ("mallory-0", "mallory-1", "mallory-o", "mallory" + "x" * 248, "mallory" + "x" * 249)
HEARD_MAX = 300  # maximum number of frames to remember, and of values per field

# Groups of fields that can take each other's values.
LIKE = {
    **dict.fromkeys(("topic", "prefix", "after", "tree"), "topic"),
    **dict.fromkeys(("offset", "ack", "upto", "delivered", "until", "sequence", "next"), "offset"),
    **dict.fromkeys(("name", "principal", "id"), "principal"),
    **dict.fromkeys(("add", "remove", "successor"), "node"),
}


class Overheard:
    """The latest frames and fields from honest clients, and the fields in their answers."""

    def __init__(self) -> None:
        self.frames: deque[Value] = deque(maxlen=HEARD_MAX)
        self.fields: dict[str, dict[Any, None]] = {"principal": {"root": None, "honest": None}}
        self.names: dict[str, None] = {}  # all topic and client names in honest frames

    def hear(self, frame: Value) -> None:
        self.frames.append(frame)
        self._keep(frame, named=True)

    def hear_answer(self, answer: Value) -> None:
        self._keep(answer, named=False)

    def _keep(self, value: Any, *, named: bool) -> None:
        for field in value.__struct_fields__:
            content = getattr(value, field)
            if isinstance(content, Value):
                self._keep(content, named=named)
            elif isinstance(content, str | int | bytes):
                known = self.fields.setdefault(LIKE.get(field, field), {})
                known.pop(content, None)
                known[content] = None
                if len(known) > HEARD_MAX:
                    del known[next(iter(known))]
                if named and isinstance(content, str):
                    self.names[content] = None


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields


class Forger:
    """Creates random values of any type that the codec knows."""

    def __init__(self, rng: Random, heard: Overheard, own: dict[str, list[Any]]) -> None:
        self._rng, self._heard, self._own = rng, heard, own
        self._honesty = 0.5  # fraction of the intruder's own names in the current frame

    def forge(self) -> Value | None:
        """Return a random frame, or None if the frame would make a node close the connection."""
        rng = self._rng
        self._honesty = rng.choice((0.0, 0.5, 0.9, 1.0))
        kind = rng.choice((Call, Call, Call, Fetch, Fetch, *CLIENTS))
        made: Any = self._struct(kind)
        if kind is Call:
            made = Call(made.id, self._struct(rng.choice(get_args(ClientCommand))))
        try:
            return CODEC.decode(CODEC.encode(made))
        except Malformed:
            return None

    def _struct(self, kind: type[msgspec.Struct]) -> Any:
        return kind(*[self._value(field.type, field.name) for field in fields_of(kind)])

    def _value(self, type_: Any, name: str) -> Any:
        rng = self._rng
        if isinstance(type_, inspect.UnionType):
            return self._value(rng.choice(type_.types), name)
        if isinstance(type_, inspect.StructType):
            return self._struct(type_.cls)
        if isinstance(type_, inspect.VarTupleType):
            if rng.random() < 0.03:
                return (rng.choice(("", "part-0")),) * 12_000
            items = [self._value(type_.item_type, name.removesuffix("s")) for _ in range(3)]
            return tuple(items[: rng.randrange(4)])
        if isinstance(type_, inspect.TupleType):
            return tuple([self._value(each, name) for each in type_.item_types])
        if isinstance(type_, inspect.NoneType):
            return None
        if isinstance(type_, inspect.BoolType):
            return rng.random() < 0.5
        if isinstance(type_, inspect.IntType):
            return self._pick(name, int, INTS)
        if isinstance(type_, inspect.StrType):
            return self._pick(name, str, TEXTS)
        assert isinstance(type_, inspect.BytesType), f"cannot forge a {type_}"
        return self._pick(name, bytes, BYTES)

    def _pick(self, name: str, kind: type, extremes: tuple[Any, ...]) -> Any:
        rng = self._rng
        like = LIKE.get(name, name)
        own = self._own.get(like, ())
        if own and rng.random() < self._honesty:
            return rng.choice(own)
        known = [each for each in self._heard.fields.get(like, ()) if type(each) is kind]
        return rng.choice(known) if known and rng.random() < 0.7 else rng.choice(extremes)


class Habit(msgspec.Struct, frozen=True):
    """How one intruder behaves."""

    name: str
    rate: float  # frames per second
    burst: int  # number of frames that the intruder sometimes sends at a time


class Strike(Value):
    """Timer: send the next frames."""


class Intruder(Protocol):
    name = "intruder"
    Message = Answer | Elsewhere
    Timer = Strike
    kinds: ClassVar[tuple[str, ...]] = ("replay", "forge", "own")

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        habit: Habit,
        nodes: list[NodeId],
        heard: Overheard,
        seed: str,
    ) -> None:
        super().__init__(me, rng)
        self._dice = Random(seed)
        self._habit, self._nodes, self._heard = habit, nodes, heard
        self._leader = NodeId("")
        self._ids = 0
        self._asked: dict[int, Any] = {}
        self._number = 0
        self._readers: dict[tuple[str, str], int] = {}  # (topic, subscription) -> epoch
        # Values are (epoch, next sequence).
        self._writers: dict[tuple[str, str], tuple[int, int]] = {}
        self._reads = OSCAR in habit.name  # whether the intruder reads most of the time
        prefix = OSCAR if self._reads else MALLORY
        names = [f"{prefix}-s", f"{MALLORY}-s", f"{MALLORY}.x"]
        self._own: dict[str, list[Any]] = {
            "topic": list(OWN),
            "subscription": names,
            "producer": names,
            "source": names,
            "part": ["part-0", "part-1"],
            "number": [0, 1, 2, 3],
            "node": list(nodes),
            "id": [],
        }
        self._forger = Forger(self._dice, heard, self._own)
        self.stopped = False

    def start(self) -> None:
        self.later(0.0, Strike())

    def timeout(self, timer: Strike) -> None:
        if self.stopped:
            return
        dice, habit = self._dice, self._habit
        for _ in range(habit.burst if dice.random() < 0.02 else 1):
            frame = self._frame()
            if frame is not None:
                self.send(self._node(), frame)
        self.later(dice.expovariate(habit.rate), timer)

    def _node(self) -> NodeId:
        if self._leader in self._nodes and self._dice.random() < 0.8:
            return self._leader
        return self._dice.choice(self._nodes)

    def _frame(self) -> Value | None:
        kind = self._dice.choices(self.kinds, (2, 4, 4))[0]
        if kind == "replay" and self._heard.frames:
            return self._dice.choice(self._heard.frames)
        if kind == "forge":
            return self._forger.forge()
        asked = self._valid()
        if isinstance(asked, Fetch | Look | Scan):
            return asked
        self._ids += 1
        self._asked[self._ids] = asked
        return Call(self._ids, asked)

    # -- valid requests --

    def _valid(self) -> Any:
        dice = self._dice
        names = self._own["subscription"]
        topic, name = dice.choice((OWN[0], *OWN[:3])), dice.choice((names[0], *names))
        reader, offset = self._readers.get((topic, name), 0), dice.randrange(4)
        reads: list[Any] = [
            do.Subscribe(topic, name, do.FromEarliest(), 0),
            do.Attach(topic, name, self.me, self._expected(reader)),
            Fetch(topic, name, reader, offset, offset, 10, 1 << 16),
            Fetch(topic, name, reader, offset, offset, 10, 1 << 16),
            Look(0, prefix=dice.choice(("", "m", "topic", "roaming"))),
            Scan(0, topic, do.FromEarliest(), bytes=1 << 16),
        ]
        if self._reads and dice.random() < 0.7:
            return dice.choice(reads)
        reads += (do.Ack(topic, name, reader, offset), do.Detach(topic, name, reader, offset))
        return dice.choice((*reads, *self._writes(topic, name), self._stolen(topic, name)))

    def _expected(self, reader: int) -> int:
        """Return the epoch of the intruder's own reader, so that the intruder keeps its names."""
        return reader or do.ANY_EPOCH

    def _writes(self, topic: str, name: str) -> list[Any]:
        dice = self._dice
        number, part = dice.randrange(4), dice.choice(("part-0", "part-1"))
        packed = batch.encode([f"{self.me}/{self._ids}".encode()], timestamps=1)
        epoch, sequence = self._writers.get((topic, name), (0, 0))
        put = do.Put(topic, name, epoch, sequence, 1, len(packed), 0, packed)
        return [
            do.CreateTopic(topic, 0),
            do.OpenProducer(topic, name, self.me, 0),
            put,
            put,
            do.Stage(name, number, part, topic, 1, len(packed), 0, packed),
            do.PublishStaged(name, number, (part,), 0, dice.choice((topic, ""))),
            dice.choice((do.PublishStaged("", 0, (), 0), do.CloseSource("", 0))),
        ]

    def _stolen(self, topic: str, name: str) -> Any:
        """Return a command with the token of an honest call, which may still be in flight."""
        tokens = list(self._heard.fields.get("token", ("",)))
        token = self._dice.choice(tokens[-5:] if self._dice.random() < 0.7 else tokens)
        commands: tuple[Any, ...] = (
            do.CreateTopic(topic, 0, token=token),
            do.DeleteTopic(topic, 0, token=token),
            do.Subscribe(topic, name, do.FromNew(), 0, token=token),
            do.Unsubscribe(topic, name, 0, token=token),
        )
        return self._dice.choice(commands)

    def receive(self, sender: NodeId, message: Answer | Elsewhere) -> None:
        if isinstance(message, Elsewhere):
            self._leader = NodeId(message.leader)
            return
        asked = self._asked.pop(message.id, None)
        result = message.result
        if isinstance(asked, do.OpenProducer) and isinstance(result, Opened):
            where = (asked.topic, asked.producer)
            self._writers[where] = (result.epoch, result.next_sequence)
        elif isinstance(asked, do.Put):
            where = (asked.topic, asked.producer)
            epoch, sequence = self._writers.get(where, (0, 0))
            self._writers[where] = (epoch, sequence + 1)
        elif isinstance(asked, do.Attach) and isinstance(result, Attached):
            self._readers[asked.topic, asked.subscription] = result.epoch
