"""`oncecast context add|use|list|remove`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oncecast.cli.connecting import (
    add_connection,
    add_flag,
    add_json,
    complain,
    report_error,
    show,
    table,
)
from oncecast.cli.contexts import (
    CONTEXTS_MAX,
    FILES,
    NAME_CHARACTERS_MAX,
    OPTIONS,
    read_contexts,
)
from oncecast.errors import ExitStatus, OncecastError


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "save connections and choose between them"
    context = commands.add_parser("context", help=about, description=about)
    verbs = context.add_subparsers(title="commands", metavar="COMMAND", required=True)

    add = verbs.add_parser("add", help="save a connection", description="save a connection")
    _add_name(add)
    add_connection(add, context=False)
    add_flag(add, "--use", "use this context from now on")
    _finish(add, run_add)

    use = verbs.add_parser("use", help="set the default context for later commands")
    _add_name(use)
    _finish(use, run_use)

    _finish(verbs.add_parser("list", help="list the contexts"), run_list)

    remove = verbs.add_parser("remove", help="delete a context")
    _add_name(remove)
    _finish(remove, run_remove)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("context", metavar="NAME", type=context_name, help="name of the context")


def _finish(parser: argparse.ArgumentParser, work: Any) -> None:
    add_json(parser)

    def run(arguments: argparse.Namespace) -> int:
        try:
            return int(work(arguments))
        except OncecastError as error:
            return report_error(error)

    parser.set_defaults(run=run)


def context_name(word: str) -> str:
    if not word or not word.isprintable() or " " in word or len(word) > NAME_CHARACTERS_MAX:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a name; use 1 to {NAME_CHARACTERS_MAX} printable characters "
            "without spaces"
        )
    return word


def run_add(arguments: argparse.Namespace) -> int:
    from oncecast.network.addresses import split

    if not arguments.server:
        return complain("a context needs an address; set --server", ExitStatus.USAGE)
    for each in arguments.server.split(","):
        split(each.strip())
    contexts = read_contexts()
    if arguments.context not in contexts.saved and len(contexts.saved) >= CONTEXTS_MAX:
        return complain(f"too many contexts (limit {CONTEXTS_MAX}); remove some of them")
    given = {name: getattr(arguments, name) for name in OPTIONS}
    contexts.saved[arguments.context] = {
        name: absolute(value) if name in FILES else value
        for name, value in given.items()
        if value != OPTIONS[name]
    }
    if arguments.use or not contexts.current:
        contexts.current = arguments.context
    contexts.write()
    return _report(arguments, "saved", contexts.current == arguments.context)


def absolute(value: str | list[str]) -> str | list[str]:
    """Return absolute paths, because later commands may run in another directory."""
    if isinstance(value, str):
        return str(Path(value).absolute())
    return [str(Path(each).absolute()) for each in value]


def run_use(arguments: argparse.Namespace) -> int:
    contexts = read_contexts()
    contexts.find(arguments.context)
    contexts.current = arguments.context
    contexts.write()
    return _report(arguments, "selected", True)


def run_list(arguments: argparse.Namespace) -> int:
    contexts = read_contexts()
    rows: list[tuple[object, ...]] = []
    for name, options in sorted(contexts.saved.items()):
        used = name == contexts.current
        show(arguments, {"context": name, "used": used, **options}, None)
        login = options.get("user") or ("token" if "token_file" in options else "")
        tls = "yes" if {"tls", "tls_ca"} & set(options) else "no"
        rows.append(("*" if used else "", name, options["server"], tls, login))
    if not arguments.json:
        table(("used", "context", "server", "tls", "login"), rows)
    return ExitStatus.OK


def run_remove(arguments: argparse.Namespace) -> int:
    contexts = read_contexts()
    contexts.find(arguments.context)
    del contexts.saved[arguments.context]
    if contexts.current == arguments.context:
        contexts.current = ""
    contexts.write()
    return _report(arguments, "removed", False)


def _report(arguments: argparse.Namespace, what: str, used: bool) -> int:
    text = f"{arguments.context}: {what}" + (", used by later commands" if used else "")
    show(arguments, {"context": arguments.context, what: True, "used": used}, text)
    return ExitStatus.OK
