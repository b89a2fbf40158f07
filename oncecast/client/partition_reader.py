"""Read one partition for a member of a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncecast.client.requests import Requests
from oncecast.client.session.local import NEVER, Drop, Read
from oncecast.client.subscription import Subscription
from oncecast.errors import InvalidArgument, OncecastError
from oncecast.wire.message import Message
from oncecast.wire.partitions import partition_topic

if TYPE_CHECKING:
    from oncecast.client.subscriptions import Subscriptions


class PartitionReader(Subscription):
    """The subscription of a consumer group to one partition, under a term of its assignment.

    Its messages have the name of the partitioned topic. `wake` is called whenever messages or an
    error may have arrived.
    """

    def __init__(
        self,
        requests: Requests,
        owner: Subscriptions,
        base: str,
        partition: int,
        term: int,
        name: str,
        *,
        auto_ack: bool,
        wake: Callable[[], None],
    ) -> None:
        self.partition, self._base, self._tell_group = partition, base, wake
        topic = partition_topic(base, partition)
        read = Read(topic, name, partition_of=base, partition=partition, term=term)
        options = {"auto_ack": auto_ack, "start_at": None, "push": False}
        super().__init__(requests, owner, topic, name, **options, read=read)  # type: ignore[arg-type]

    def _wake(self) -> None:
        super()._wake()
        self._tell_group()

    def _check(self, message: Message) -> None:
        self.raise_error()
        if (message.topic, message.partition) != (self._base, self.partition):
            raise InvalidArgument(
                f"the message is from partition {message.partition} of topic {message.topic!r}, "
                f"not {self.partition} of {self._base!r}"
            )

    @property
    def end(self) -> OncecastError | None:
        """Return why the reader has ended, or None."""
        return self._error

    @property
    def queued(self) -> bool:
        """Return whether a message has arrived, or an error that was not raised yet."""
        return bool(self._queue) or self._lost is not None or self._error is not None

    @property
    def acknowledged(self) -> bool:
        """Return whether all messages that were taken are acknowledged."""
        return self._inbox.ack >= self._inbox.delivered

    def take_next(self) -> Message | None:
        """Return the next message that has arrived, or None. Acknowledge those before it."""
        if len(self._queue) > self._slow:
            return self._queue.popleft()
        return self._take()

    def take_more(self, count: int) -> list[Message]:
        """Return up to `count` more messages, without an acknowledgement of those taken before."""
        self._slow = NEVER
        before = self._inbox.last
        taken = self._inbox.take_many(count)
        self._inbox.last += before
        self._took()
        return taken

    def acknowledge_taken(self) -> None:
        """Acknowledge all messages that were taken, if `auto_ack` is set."""
        if self._error is None:
            self._ask()

    def raise_error(self) -> None:
        """Raise the error of the reader, if there is one."""
        self._raise()

    async def has_more(self) -> bool:
        """Return whether the topic holds another message. If so, wait for it to arrive first."""
        await self.ready()
        return await self._at_hand()

    def drop(self, error: OncecastError) -> None:
        """Stop reading at once, without an acknowledgement."""
        delivered = self._inbox.delivered
        self.fail(error)
        self._requests.send(Drop(self.topic, self.name, delivered))
