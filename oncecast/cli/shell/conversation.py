"""Run shell commands, the same as those of `oncecast COMMAND`, over one connection.

One thread runs the client and its event loop. The main thread reads lines and waits for each
command. The client reconnects by itself, and the shell reports lost and restored connections. A
client that was refused or fenced is replaced before the next command.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Any, Self

from oncecast.cli.connecting import (
    STOP_WITHIN,
    add_subscription,
    add_work,
    client_of,
    complain,
    report_error,
)
from oncecast.cli.messages import get, put, subs, subscribe, topics
from oncecast.cli.messages.watching import News, Watching, key_of
from oncecast.cli.output import on_terminal
from oncecast.cli.parser import Parser, near
from oncecast.cli.shell.words import SHORT, Completion, command, divide, verbs
from oncecast.cli.signals import exit_on_signals
from oncecast.client.client import Client
from oncecast.client.portal import Portal
from oncecast.errors import Closed, ExitStatus, Fenced, NotConnected, OncecastError, StateUnusable

PERHAPS_ENDED = (Closed, NotConnected, Fenced, StateUnusable)
COMPLETE_WITHIN = 1.0  # seconds to wait for completions from the node
COMPLETE_MAX = 500
LEAVE_WITHIN = 1.0  # seconds to close the client while the connection is lost


class Conversation:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._client: Client | None = None
        self._task: asyncio.Task[int]
        self._news = News()
        self._watching = Watching(self._news)
        self.parser = self._commands()
        self.completion = Completion(self.parser, self._topics, self._subscriptions)
        self.over = False

    def __enter__(self) -> Self:
        self._portal = Portal()
        self._news.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self._news.detach()
        self._portal.stop()

    def greet(self, say: Callable[[str], None]) -> int:
        """Connect and print a greeting. Return a status other than 0 if retrying is pointless."""

        async def greet() -> int:
            try:
                node = await (await self._connected()).ping()
            except NotConnected as error:
                report_error(error)
                return ExitStatus.OK
            except OncecastError as error:
                return report_error(error)
            print(on_terminal(f"Connected to {node.node}, version {node.version}."))
            return ExitStatus.OK

        self._news.say = say
        status = self._run(greet())
        if status == ExitStatus.OK:
            print("Type `help` for a list of commands, Ctrl-D to leave.")
        return status

    def close(self) -> int:
        return self._run(self._leave())

    @contextmanager
    def closed_by_signals(self) -> Iterator[None]:
        """Close the client if SIGTERM or SIGHUP ends the shell."""
        with exit_on_signals():
            try:
                yield
            except SystemExit:
                self.close()
                raise

    # -- lines --

    def do(self, line: str) -> int:
        """Run a line and return its exit status."""
        try:
            words = divide(line)
        except ValueError as error:
            return complain(
                f"{str(error).lower()}; write a quote inside a word as \\' or \\\"",
                ExitStatus.USAGE,
            )
        if not words:
            return ExitStatus.OK
        if words[0] not in verbs(self.parser):
            hint = near(words[0], [*verbs(self.parser), *SHORT]) or "; `help` lists the commands"
            return complain(f"unknown command {words[0]!r}{hint}", ExitStatus.USAGE)
        try:
            arguments = self.parser.parse_args(words)
        except SystemExit as end:  # argparse has printed help or an error
            return int(end.code or ExitStatus.OK)
        if "here" in arguments:
            return int(arguments.here(arguments))
        arguments.json |= self._arguments.json
        if "timeout" not in arguments:
            arguments.timeout = self._arguments.timeout
        return self._run(self._work(arguments))

    def _run(self, work: Coroutine[Any, Any, int]) -> int:
        """Run `work` in the client's loop and return its status.

        On an interrupt, cancel the work and raise the interrupt again.
        """
        loop, done = self._portal.loop, Future[int]()

        def start() -> None:
            self._task = loop.create_task(work)
            self._task.add_done_callback(lambda task: settle(task, done))

        loop.call_soon_threadsafe(start)
        try:
            return done.result()
        except (KeyboardInterrupt, SystemExit) as end:
            if isinstance(end, SystemExit) and self._client is not None:
                self._client.hurry(STOP_WITHIN)
            loop.call_soon_threadsafe(lambda: self._task.cancel())
            with suppress(Exception, CancelledError):
                done.result()
            raise

    async def _work(self, arguments: argparse.Namespace) -> int:
        work: Callable[[Client, argparse.Namespace], Awaitable[int]] = arguments.work
        if work is get.run_get and key_of(arguments) in self._watching.watched:
            what = f"topic {arguments.topic!r} is being watched; run `unwatch` first"
            return complain(what, ExitStatus.NOT_ALLOWED)
        try:
            return await work(await self._connected(), arguments)
        except OncecastError as error:
            status = report_error(error)
            if isinstance(error, PERHAPS_ENDED):
                await self._replace_ended()
            return status

    # -- the client --

    async def _connected(self) -> Client:
        if self._client is None:
            self._client = await client_of(self._arguments).__aenter__()
        return self._client

    async def _replace_ended(self) -> None:
        """Drop the client if it was fenced or refused, and not only one of its subscriptions."""
        client = self._client
        if client is None:
            return
        try:
            await client.ping()
        except OncecastError:
            self._client = None
            with suppress(OncecastError):
                await client.close()

    async def _leave(self) -> int:
        """Close the client and return the exit status.

        Pending puts and acks are stored if the node is reachable.
        """
        client, self._client = self._client, None
        if client is None:
            return ExitStatus.OK
        self._watching.stop()
        try:
            async with asyncio.timeout(LEAVE_WITHIN if self._news.lost else None):
                await client.close()
        except TimeoutError:
            return complain(
                "the node is unreachable; the outcome of unanswered commands is unknown"
            )
        except OncecastError as error:
            return report_error(error)
        return ExitStatus.OK

    # -- completion --

    def _topics(self, prefix: str) -> list[str]:
        async def names(client: Client) -> list[str]:
            found: list[str] = []
            async for view in client.topics(prefix):
                found.append(view.name)
                if len(found) == COMPLETE_MAX:
                    break
            return found

        return self._at_once(names)

    def _subscriptions(self, topic: str) -> list[str]:
        async def names(client: Client) -> list[str]:
            return [each.name for each in (await client.describe(topic)).subscriptions]

        return self._at_once(names)

    def _at_once(self, names: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
        if self._client is None or self._news.lost:
            return []
        with suppress(OncecastError, TimeoutError):
            return self._portal.call(asyncio.wait_for(names(self._client), COMPLETE_WITHIN))
        return []

    # -- commands --

    def _commands(self) -> argparse.ArgumentParser:
        """Return a parser for all shell commands, without connection options."""
        parser = Parser(prog="", add_help=False)
        commands = parser.add_subparsers(metavar="COMMAND", required=True)
        for each in (put, get, subscribe, topics, subs):
            each.configure(commands, in_shell=True)
        for name, about, work in (
            ("watch", "show messages as they arrive", self._watching.watch),
            ("unwatch", "stop showing messages", self._watching.unwatch),
        ):
            watch = commands.add_parser(name, help=about, description=about)
            watch.add_argument("topic", metavar="TOPIC")
            add_subscription(watch)
            add_work(watch, work, in_shell=True)
        help_ = commands.add_parser("help", help="list all commands, or explain one command")
        help_.add_argument("words", metavar="COMMAND", nargs="*")
        help_.set_defaults(here=self._help)
        exit_ = commands.add_parser("exit", help="leave the shell (or press Ctrl-D)")
        exit_.set_defaults(here=self._exit)
        trim(parser)
        return parser

    def _help(self, arguments: argparse.Namespace) -> int:
        words: list[str] = arguments.words
        if words:
            found, rest = command(self.parser, [*SHORT.get(words[0], words[:1]), *words[1:]])
            if rest:
                return complain(
                    f"unknown command {' '.join(words)!r}; `help` lists the commands",
                    ExitStatus.USAGE,
                )
            found.print_help()
            return ExitStatus.OK
        (group,) = (a for a in self.parser._actions if isinstance(a, argparse._SubParsersAction))
        for each in group._choices_actions:
            print(f"  {each.dest:<10}{each.help}")
        print("Other names: " + ", ".join(f"{s} = {' '.join(f)}" for s, f in SHORT.items()))
        print('Quote names with spaces: get "my topic". For details: `help COMMAND`.')
        return ExitStatus.OK

    def _exit(self, arguments: argparse.Namespace) -> int:
        self.over = True
        return ExitStatus.OK


def settle(task: asyncio.Task[int], done: Future[int]) -> None:
    if task.cancelled():
        done.set_exception(CancelledError())
    elif error := task.exception():
        done.set_exception(error)
    else:
        done.set_result(task.result())


def trim(parser: argparse.ArgumentParser) -> None:
    """Remove the program name from the usage of all commands."""
    parser.prog = parser.prog.strip()
    for each in verbs(parser).values():
        trim(each)
