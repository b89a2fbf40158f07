"""Checks of arguments, before a request is sent: a bad frame would end the session."""

from __future__ import annotations

import msgspec

from oncecast.errors import InvalidArgument, InvalidName, InvalidTopic
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.batch_layout import check_level
from oncecast.wire.frames import ClientCommand
from oncecast.wire.limits import NAME_BYTES_MAX, is_name
from oncecast.wire.retention import DEFAULT, Policy

OF_SOURCES = do.PublishStaged | do.DropStaged | do.CloseSource  # topic may be empty


def check_names(command: ClientCommand) -> None:
    """Raise if a name, the start or the policy of a command is not valid."""
    topic = getattr(command, "topic", " ")
    if not is_name(topic) and not (topic == "" and isinstance(command, OF_SOURCES)):
        raise InvalidTopic(fault_of("topic name", topic))
    check_name("subscription", getattr(command, "subscription", " "))
    check_start(getattr(command, "start", do.FromNew()))
    policy = getattr(command, "policy", DEFAULT)
    if not isinstance(policy, Policy):
        raise InvalidArgument(f"policy is {policy!r:.80}", "use a Policy")


def check_topic(topic: object) -> None:
    if not is_name(topic):
        raise InvalidTopic(fault_of("topic name", topic))


def check_name(what: str, name: object) -> None:
    if not is_name(name):
        raise InvalidName(what).reworded(fault_of(f"{what} name", name))


def fault_of(what: str, name: object) -> str:
    """Return why `name`, which is not valid, is not valid."""
    if not isinstance(name, str):
        return f"{what} is {name!r:.80}, not a str"
    if not name:
        return f"{what} is empty"
    try:
        return f"{what} is {len(name.encode())} bytes long (limit {NAME_BYTES_MAX})"
    except UnicodeEncodeError:  # half of a surrogate pair
        return f"{what} {name!r:.80} is not valid Unicode"


def check_start(start: object) -> None:
    if not isinstance(start, do.Start):
        choices = "use NEW, EARLIEST, from_offset(n) or from_time(seconds)"
        raise InvalidArgument(f"start is {start!r:.80}", choices)


def check_compression(level: int) -> None:
    """Check the level and that zstandard is installed: a batch that cannot be packed is lost."""
    try:
        check_level(level)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def check_sendable(value: Value) -> None:
    """Raise if a field has a wrong type or a value that no frame can carry."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (UnicodeEncodeError, OverflowError, TypeError, msgspec.ValidationError) as error:
        raise InvalidArgument(f"invalid argument: {error}") from None
