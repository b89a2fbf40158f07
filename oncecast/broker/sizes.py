"""Check the size of a client's request before the node does any work for it.

The state machine refuses invalid names too, but a refused command is still replicated. A command
that is longer than a frame cannot be replicated, and would block the group.
"""

from __future__ import annotations

from typing import get_args

from oncecast.kernel.codec import ENCODER
from oncecast.wire.access_faults import access_fault
from oncecast.wire.commands import AccessCommand, PublishStaged, Put, SubscribeShared
from oncecast.wire.errors import InvalidArgument, InvalidName, InvalidTopic, TooMany
from oncecast.wire.frames import ClientCommand, Fetch, Look, Scan, Work
from oncecast.wire.limits import NAME_BYTES_MAX, PARTS_MAX
from oncecast.wire.partitions import PARTITIONS_MAX, Enlist
from oncecast.wire.sharing import WINDOW_MAX, Settle
from oncecast.wire.transactions import EndTransaction

ALWAYS_SHORT = NAME_BYTES_MAX // 4  # in characters, because a character has at most four bytes

OF_ACCESS = get_args(AccessCommand)
ACCESS_BYTES_MAX = 8 * 1024  # maximum size of a command for users, tokens or rules

TEXTS = (
    *("topic", "token", "producer", "incarnation", "directory_id"),
    *("subscription", "source", "part", "run", "worker"),
    *("member", "partition_of"),
)
NAMES: dict[type, tuple[str, ...]] = {
    kind: tuple(name for name in kind.__struct_fields__ if name in TEXTS)
    for kind in get_args(ClientCommand)
}


def too_long(name: str) -> bool:
    return len(name) > ALWAYS_SHORT and len(name.encode()) > NAME_BYTES_MAX


def size_fault(
    command: ClientCommand,
) -> InvalidTopic | InvalidName | InvalidArgument | TooMany | None:
    """Return a refusal if the command is too large or a name is too long, otherwise None."""
    if type(command) is Put:  # the most frequent command
        short = len(command.topic) <= ALWAYS_SHORT and len(command.producer) <= ALWAYS_SHORT
        if short:
            return None
    for field in NAMES[type(command)]:
        if too_long(getattr(command, field)):
            return InvalidTopic() if field == "topic" else InvalidName(field)
    if isinstance(command, AccessCommand):
        return access_fault(command)
    if isinstance(command, Enlist) and len(command.released) > PARTITIONS_MAX:
        return TooMany("released partitions", PARTITIONS_MAX)
    if isinstance(command, Settle) and command.fault:
        return InvalidArgument(command.fault)
    if isinstance(command, SubscribeShared):
        settings = command.settings
        long = settings is not None and too_long(settings.dead_letters)
        return InvalidName("dead-letter topic") if long else None
    if isinstance(command, EndTransaction):
        return transaction_fault(command)
    if isinstance(command, PublishStaged):
        if len(command.parts) > PARTS_MAX:
            return TooMany("parts in one publish", PARTS_MAX)
        if any(map(too_long, command.parts)):
            return InvalidName("part")
    if isinstance(command, OF_ACCESS) and (size := len(ENCODER.encode(command))) > ACCESS_BYTES_MAX:
        return InvalidArgument(
            f"the command is {size:,} bytes long (limit {ACCESS_BYTES_MAX:,}); use shorter names"
        )
    return None


def transaction_fault(
    command: EndTransaction,
) -> InvalidTopic | InvalidName | InvalidArgument | None:
    """Return a refusal if the transaction has a fault or an overlong name, otherwise None."""
    if command.fault:
        return InvalidArgument(command.fault)
    topics = [each.topic for each in command.outputs]
    if any(map(too_long, topics + [each.topic for each in command.inputs])):
        return InvalidTopic()
    if any(map(too_long, command.parts)):
        return InvalidName("part")
    if any(too_long(each.subscription) for each in command.inputs):
        return InvalidName("subscription")
    if any(too_long(each.worker) for each in command.accepted):
        return InvalidName("worker")
    return None


def work_fault(work: Work) -> InvalidTopic | InvalidName | InvalidArgument | None:
    """Return a refusal if a Work has an overlong name or an invalid window, otherwise None."""
    if too_long(work.topic):
        return InvalidTopic()
    for name, what in ((work.subscription, "subscription"), (work.worker, "worker")):
        if not name or too_long(name):
            return InvalidName(what)
    if not 0 <= work.window <= WINDOW_MAX:
        return InvalidArgument(
            f"the window is {work.window} messages (limits 0 and {WINDOW_MAX:,}); "
            "choose a window within the limits"
        )
    return None


def read_fault(question: Fetch | Look | Scan) -> InvalidTopic | InvalidName | None:
    """Return a refusal if a name in the read is too long, otherwise None."""
    if too_long(question.topic):
        return InvalidTopic()
    if isinstance(question, Fetch):
        return InvalidName("subscription") if too_long(question.subscription) else None
    if isinstance(question, Look) and (too_long(question.prefix) or too_long(question.after)):
        return InvalidName("prefix")
    return None
