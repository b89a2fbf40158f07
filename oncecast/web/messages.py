"""Handlers that put messages, and that show messages without a subscription."""

from __future__ import annotations

import asyncio
import time

from oncecast.client.timing import timing_of
from oncecast.errors import InvalidArgument, NoSuchPage
from oncecast.web import shapes
from oncecast.web.backend import messages_of, offset
from oncecast.web.exchange import BYTES, Call, Plain, Raw
from oncecast.web.views import message_shape
from oncecast.wire import batch
from oncecast.wire.batch import Oversized
from oncecast.wire.commands import FromEarliest, FromTime, Start
from oncecast.wire.message import Message

SCAN_BYTES = 1 << 20  # bytes per scan
SEARCH_BYTES = 8 << 20  # bytes that a search reads before it answers
HEADER = "oncecast-header-"


# Put


class Put:
    """One message of a put, with the bytes of its parts."""

    __slots__ = ("headers", "key", "value")

    def __init__(self, value: bytes, key: bytes | None, headers: dict[str, bytes]) -> None:
        self.value, self.key, self.headers = value, key, headers


def puts_of(call: Call) -> list[Put]:
    """Return the messages in the body, which is one value or a list."""
    body = call.body
    if isinstance(body, Raw):
        key = None if call["key"] is None else call["key"].encode()
        headers = {
            name.removeprefix(HEADER): text.encode()
            for name, text in call.headers.items()
            if name.startswith(HEADER)
        }
        return [Put(body.data, key, headers)]
    return [
        Put(
            one_of("value", each.value, each.text) or b"",
            one_of("key", each.key, each.key_text),
            each.headers,
        )
        for each in body.messages
    ]


def one_of(what: str, data: bytes | None, text: str | None) -> bytes | None:
    if data is not None and text is not None:
        raise InvalidArgument(
            f"a message has its {what} both as base64 and as text", "send only one of them"
        )
    return text.encode() if text is not None else data


async def put(call: Call) -> shapes.Put:
    puts = puts_of(call)
    producer, sequence = call["Oncecast-Producer"], call["Oncecast-Sequence"]
    if (producer is None) != (sequence is None):
        raise InvalidArgument(
            "Oncecast-Producer and Oncecast-Sequence must be sent together", "send both headers"
        )
    if producer is not None:
        return await put_once(call, puts, producer, sequence)
    client, delay, ttl = call.client, call["delay"], call["ttl"]
    receipts = await asyncio.gather(
        *(
            client.put(call.topic, each.value, each.key, each.headers or None, delay=delay, ttl=ttl)
            for each in puts
        )
    )
    first = receipts[0]
    return shapes.Put(
        offset=first.offset if first.offset >= 0 else None,
        count=len(puts),
        stored=True,
        kept=first.kept,
    )


async def put_once(call: Call, puts: list[Put], producer: str, sequence: int) -> shapes.Put:
    try:
        data = batch.encode(
            [each.value for each in puts],
            keys=[each.key for each in puts],
            headers=[each.headers for each in puts],
            timestamps=time.time_ns() // 1000,
        )
    except (Oversized, ValueError) as error:
        raise InvalidArgument(str(error)) from None
    timing = timing_of(call["delay"], None, call["ttl"])
    stored = await call.session.producers.put(
        call.topic, producer, sequence, len(puts), data, timing
    )
    return shapes.Put(
        offset=stored.offset if stored.offset >= 0 else None,
        count=stored.messages,
        stored=stored.new,
        kept=stored.kept,
    )


# Browse


async def start_of(call: Call) -> Start:
    """Return where to start: at an offset, at a time, or at a distance from the end."""
    begin, time_us = call["from"], call["timestamp"]
    if time_us is not None:
        if begin is not None:
            raise InvalidArgument("both from and timestamp are set", "set only one of them")
        return FromTime(time_us)
    if begin is None:
        return FromEarliest()
    if begin >= 0:
        return offset(begin)
    located = await call.client.locate(call.topic, FromEarliest())
    return offset(max(located.first, located.next + begin))


class Finder:
    """Collects the messages that a request asks for, within its limits."""

    def __init__(self, call: Call) -> None:
        self._limit = call["limit"]
        self._value_bytes = call["value_bytes"]
        self._search = call["search"].encode()
        self._room = call.hub.limits.response_bytes
        self.found: list[shapes.MessageShape] = []
        self.scanned = 0
        self.next = -1  # the offset after the last message that was looked at

    def add(self, messages: list[Message]) -> bool:
        """Look at these messages. Return whether the response can have more."""
        for each in messages:
            if len(self.found) >= self._limit or self._room <= 0:
                return False
            self.scanned += 1
            self.next = each.offset + 1
            if self._matches(each):
                shown = message_shape(each, self._value_bytes)
                self._room -= 200 + 3 * len(shown.value)
                self.found.append(shown)
        return len(self.found) < self._limit and self._room > 0

    def _matches(self, message: Message) -> bool:
        search = self._search
        return (
            not search
            or search in message.value
            or (message.key is not None and search in message.key)
            or any(search in each for each in message.headers.values())
        )


async def browsed(call: Call) -> shapes.Browsed:
    start = await start_of(call)
    finder, read, topic_id = Finder(call), 0, 0
    size = min(SCAN_BYTES, call.hub.limits.response_bytes)
    while True:
        page = await call.session.backend.page(call.topic, start, size=size, topic_id=topic_id)
        topic_id = page.topic_id
        if finder.next < 0:
            finder.next = page.offset
            if not page.slices and page.offset < page.next:  # the start is no longer kept
                start = offset(page.offset)
                continue
        read += max(1, sum(len(each.chunk.batch) for each in page.slices))
        more = finder.add(messages_of(page, MESSAGES_MAX))
        if not more or finder.next >= page.next or read >= SEARCH_BYTES or not page.slices:
            break
        start = offset(finder.next)
    return shapes.Browsed(
        messages=finder.found,
        first=page.first,
        end=page.next,
        next=finder.next if finder.next < page.next else None,
        scanned=finder.scanned,
    )


MESSAGES_MAX = 10_000  # maximum messages of one scan that are decoded


async def one(call: Call) -> shapes.MessageShape | Plain:
    page = await call.session.backend.page(call.topic, offset(call["offset"]), size=1)
    found = messages_of(page, 1)
    if not found or found[0].offset != call["offset"]:
        raise NoSuchPage(
            f"topic {call.topic!r} has no message at offset {call['offset']}",
            f"use an offset from {page.first} to {page.next - 1}",
        )
    if call.headers.get("accept") == BYTES:
        return Plain(200, BYTES, found[0].value)
    return message_shape(found[0])
