"""What cannot be meant is refused where it is asked for, and costs nobody a session."""

from __future__ import annotations

import msgspec

from oncecast.client.errors import InvalidArgument, raised
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire import errors as refusals
from oncecast.wire.batch_layout import check_level
from oncecast.wire.frames import ClientCommand
from oncecast.wire.limits import is_name

OF_SOURCES = do.PublishStaged | do.DropStaged | do.CloseSource  # which name a topic, or none


def check_names(command: ClientCommand) -> None:
    """What no frame can carry, or no node will take, is refused here."""
    topic = getattr(command, "topic", " ")
    if not is_name(topic) and not (topic == "" and isinstance(command, OF_SOURCES)):
        raise raised(refusals.InvalidTopic())
    if not is_name(getattr(command, "subscription", " ")):
        raise raised(refusals.InvalidName("subscription"))


def check_compression(level: int) -> None:
    """Check the level and the import now: a batch that cannot be packed later is lost."""
    try:
        check_level(level)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def check_sendable(value: Value) -> None:
    """What no frame can carry would end the session, and what is of another type be dropped."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (UnicodeEncodeError, OverflowError, TypeError, msgspec.ValidationError) as error:
        raise InvalidArgument(f"this cannot be asked for: {error}") from None
