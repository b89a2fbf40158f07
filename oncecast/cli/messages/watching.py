"""Show arriving messages and connection changes in the shell, between commands."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncecast.cli.connecting import complain, show
from oncecast.cli.messages.get import TOGETHER, as_lines, in_words
from oncecast.errors import ExitStatus, MessagesLost, OncecastError
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.client.subscription import Subscription


class News(logging.Handler):
    """A log handler that reports when the connection is lost and restored."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.say: Callable[[str], None] | None = None  # prints above the prompt of a terminal
        self.lost = False
        self._logger = logging.getLogger("oncecast.network")

    def attach(self) -> None:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False

    def detach(self) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        event = record.getMessage().split(" ", 1)[0]
        if event == "lost":
            self.lost = True
            self.notice("connection lost; reconnecting")
        elif event == "linked" and self.lost:
            self.lost = False
            self.notice("reconnected")

    def notice(self, text: str) -> None:
        if self.say is not None:
            self.say(f"oncecast: {escaped(text)}")
        else:
            complain(text)

    def data(self, text: str) -> None:
        if self.say is not None:
            self.say(text)
        else:
            print(text, flush=True)


class Watching:
    def __init__(self, news: News) -> None:
        self._news = news
        self.watched: dict[tuple[str, str], tuple[Subscription, asyncio.Task[None]]] = {}

    async def watch(self, client: Client, arguments: argparse.Namespace) -> int:
        topic, name = key = key_of(arguments)
        if key not in self.watched:
            subscription = await client.read(topic, name, auto_ack=False)
            task = asyncio.create_task(self._follow(subscription, as_json=arguments.json))
            self.watched[key] = subscription, task
        fields = {"topic": topic, "subscription": name, "watched": True}
        show(arguments, fields, f"{topic}: watching; messages are acknowledged when shown")
        return ExitStatus.OK

    async def unwatch(self, client: Client, arguments: argparse.Namespace) -> int:
        topic, name = key = key_of(arguments)
        if key not in self.watched:
            return complain(
                f"topic {topic!r} is not being watched; use `watch` first", ExitStatus.NOT_FOUND
            )
        subscription, task = self.watched.pop(key)
        task.cancel()
        await subscription.close()
        fields = {"topic": topic, "subscription": name, "watched": False}
        show(arguments, fields, f"{topic}: no longer watched")
        return ExitStatus.OK

    def stop(self) -> None:
        for _, task in self.watched.values():
            task.cancel()

    async def _follow(self, subscription: Subscription, *, as_json: bool) -> None:
        """Show messages as they arrive, and acknowledge them."""
        try:
            while True:
                try:
                    arrived = await subscription.get_many(TOGETHER)
                except MessagesLost as lost:
                    self._news.notice(str(lost))
                    continue
                lines = as_lines(arrived) if as_json else map(in_words, arrived)
                self._news.data("\n".join(lines))
                subscription.ack(arrived[-1])
        except OncecastError as error:
            self.watched.pop((subscription.topic, subscription.name), None)
            self._news.notice(f"{subscription.topic}: no longer watched: {error.in_cli()}")


def key_of(arguments: argparse.Namespace) -> tuple[str, str]:
    return arguments.topic, arguments.subscription
