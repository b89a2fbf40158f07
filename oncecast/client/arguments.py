"""Check arguments before a request is sent. An invalid frame would end the session."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from oncecast.errors import InvalidArgument, InvalidName, InvalidTopic
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.batch_layout import check_level
from oncecast.wire.frames import ClientCommand
from oncecast.wire.limits import NAME_BYTES_MAX, is_name
from oncecast.wire.partitions import PARTITIONS_MAX
from oncecast.wire.retention import DEFAULT, Policy

OF_SOURCES = do.PublishStaged | do.DropStaged | do.CloseSource  # the topic may be empty


def check_names(command: ClientCommand) -> None:
    """Raise an error if a name, the start or the policy of a command is invalid."""
    topic = getattr(command, "topic", " ")
    if not is_name(topic) and not (topic == "" and isinstance(command, OF_SOURCES)):
        raise InvalidTopic(fault_of("topic name", topic))
    check_name("subscription", getattr(command, "subscription", " "))
    check_start(getattr(command, "start", do.FromNew()))
    policy = getattr(command, "policy", DEFAULT)
    if not isinstance(policy, Policy):
        raise InvalidArgument(f"policy is {policy!r:.80}", "use oncecast.Policy(...)")


def check_topic(topic: object) -> None:
    if not is_name(topic):
        raise InvalidTopic(fault_of("topic name", topic))


def check_name(what: str, name: object) -> None:
    if not is_name(name):
        raise InvalidName(what).reworded(fault_of(f"{what} name", name))


def fault_of(what: str, name: object) -> str:
    """Return why a name is invalid."""
    if not isinstance(name, str):
        return f"{what} is {name!r:.80}, not a str"
    if not name:
        return f"{what} is empty"
    try:
        return f"{what} is {len(name.encode())} bytes long (limit {NAME_BYTES_MAX})"
    except UnicodeEncodeError:  # a lone surrogate
        return f"{what} {name!r:.80} is not valid Unicode"


def check_start(start: object) -> None:
    if not isinstance(start, do.Start):
        choices = "use NEW, EARLIEST, from_offset(n) or from_time(seconds)"
        raise InvalidArgument(f"start is {start!r:.80}", choices)


def check_compression(level: int) -> None:
    """Raise an error if the level is invalid or zstandard is not installed."""
    try:
        check_level(level)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def check_sendable(value: Value) -> None:
    """Raise an error if a field has the wrong type or cannot be encoded in a frame."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except msgspec.ValidationError as error:
        cause, _, path = str(error).partition(" - at `$")
        raise InvalidArgument(f"{field_at(value, path)}: {cause[0].lower()}{cause[1:]}") from None
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InvalidArgument(f"invalid argument: {error}") from None


def field_at(value: Any, path: str) -> str:
    """Return the name of the field at a path such as `[2][1]`. Item 0 is a struct's tag."""
    name = "invalid argument"
    for index in map(int, re.findall(r"\[(\d+)\]", path)):
        if not isinstance(value, msgspec.Struct):
            break
        tagged = value.__struct_config__.tag is not None
        name = value.__struct_fields__[index - tagged]
        value = getattr(value, name)
    return name


def check_password(password: object) -> None:
    if not isinstance(password, str):
        raise InvalidArgument(f"the password is of type {type(password).__name__}", "use a str")
    if not password:
        raise InvalidArgument("the password is empty", "choose a password")


def check_tls(tls: object) -> None:
    from oncecast.network.tls import Tls  # imported here because most clients do not use TLS

    if not isinstance(tls, Tls):
        raise InvalidArgument(f"tls is {tls!r:.80}", "use oncecast.Tls.from_files(...)")


def check_count(count: object) -> None:
    if not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"count is {count!r:.80}", "request at least one message")


def check_partitions(count: object) -> None:
    if not isinstance(count, int) or not 1 <= count <= PARTITIONS_MAX:
        raise InvalidArgument(f"partitions is {count!r:.80}", f"use 1 to {PARTITIONS_MAX:,}")


def check_wait(timeout: object) -> None:
    """Raise an error unless `timeout` is a number. A negative timeout means 0."""
    if not isinstance(timeout, int | float) or timeout != timeout:
        raise InvalidArgument(
            f"timeout is {timeout!r:.80}", "use a number of seconds, or None for no limit"
        )


def check_timeout(name: str, seconds: object) -> None:
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidArgument(f"{name} is {seconds!r:.80}", "use 0 or a positive number of seconds")
