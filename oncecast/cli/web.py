"""`oncecast web`: serve the HTTP interface and the console from a separate process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    add_connection,
    add_flag,
    add_option,
    client_options,
    positive,
    report_error,
)
from oncecast.errors import ExitStatus, NotAllowed, OncecastError

if TYPE_CHECKING:
    from oncecast.network.tls import Tls
    from oncecast.web.app import Application
    from oncecast.web.server import Listener

LISTEN = "127.0.0.1:8400"
CONNECTIONS_MAX = 1000
BODY_MAX = 16 << 20
TAILS_MAX = 200
ANSWER_TIMEOUT = 10.0  # seconds that a request waits for a node
NEEDS = 'the HTTP interface needs Starlette and uvicorn; run: pip install "oncecast[web]"'


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    web = commands.add_parser(
        "web",
        help="serve HTTP clients and the console",
        description="Serve HTTP clients and the console until SIGTERM or SIGINT. Each request acts "
        "as the user that it logs in as. Requests without a login act as the user that this "
        "process logs in as, unless --login is set. See docs/http.md.",
    )
    add_option(web, "--listen", "HOST:PORT", "address for HTTP clients", LISTEN)
    web.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="host name that clients use for this server, besides its address; may be repeated",
    )
    add_flag(web, "--login", "refuse requests without a login")
    web.add_argument(
        "--listen-tls",
        nargs=2,
        metavar=("CERT", "KEY"),
        help="PEM files with the certificate that HTTP clients see, and its key; enables TLS",
    )
    add_flag(web, "--insecure", "accept clients from other machines without TLS or a login")
    add_option(
        web, "--connections-max", "N", "maximum number of connections", CONNECTIONS_MAX, positive
    )
    add_option(web, "--tails-max", "N", "maximum number of open tails", TAILS_MAX, positive)
    add_option(web, "--body-max", "BYTES", "maximum size of a request's body", BODY_MAX, positive)
    add_connection(web)
    web.set_defaults(run=run, timeout=ANSWER_TIMEOUT)


def run(arguments: argparse.Namespace) -> int:
    from oncecast.network.network import run as run_loop

    try:
        return run_loop(serve(arguments))
    except OncecastError as error:
        return report_error(error)


async def serve(arguments: argparse.Namespace) -> int:
    from oncecast.cli.signals import ended_by_signals
    from oncecast.network.addresses import split

    try:
        from oncecast.web.app import Application
        from oncecast.web.limits import Limits
        from oncecast.web.server import Listener
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise OncecastError(NEEDS) from None
    host, port = split(arguments.listen)
    check_exposure(arguments, host)
    app = Application(
        client_options(arguments, None),
        hosts=hosts_of(arguments, host),
        login=arguments.login,
        limits=Limits(body_bytes=arguments.body_max, tails=arguments.tails_max),
        console=True,
        passwords=private(arguments, host),
    )
    listener = Listener(
        app,
        host,
        port,
        tls=listener_tls(arguments),
        connections_max=arguments.connections_max,
    )
    return await ended_by_signals(until_ended(app, listener), ended=ExitStatus.OK)


def private(arguments: argparse.Namespace, host: str) -> bool:
    """Return whether passwords do not cross a network in clear text."""
    from oncecast.network.addresses import is_loopback

    return bool(arguments.listen_tls) or is_loopback(host)


def check_exposure(arguments: argparse.Namespace, host: str) -> None:
    """Raise NotAllowed if other machines can reach the address without TLS or without a login."""
    from oncecast.network.addresses import is_loopback

    if is_loopback(host):
        return
    if arguments.login and not arguments.listen_tls:
        raise NotAllowed(
            f"{arguments.listen}: passwords would cross the network without TLS",
            "set --listen-tls, or listen on 127.0.0.1",
        )
    missing = [] if arguments.login else ["HTTP clients do not log in"]
    missing += [] if arguments.listen_tls else ["TLS is off"]
    if missing and not arguments.insecure:
        raise NotAllowed(
            f"{arguments.listen}: other machines can reach this address, but "
            + " and ".join(missing),
            "set --login and --listen-tls, listen on 127.0.0.1, or allow it with --insecure",
        )


def hosts_of(arguments: argparse.Namespace, host: str) -> list[str]:
    """Return the names that a Host header may have."""
    from oncecast.network.addresses import is_loopback
    from oncecast.web.guard import ADDRESSES, LOOPBACK

    names = [*LOOPBACK, host, *arguments.host]
    return names if is_loopback(host) else [*names, ADDRESSES]


def listener_tls(arguments: argparse.Namespace) -> Tls | None:
    if not arguments.listen_tls:
        return None
    from oncecast.network.tls import Tls

    certificate, key = arguments.listen_tls
    return Tls.from_files(certificate=certificate, key=key)


async def until_ended(app: Application, listener: Listener) -> int:
    import asyncio

    try:
        await app.ready()
        async with listener:
            print(f"serving HTTP clients on {listener.address}", flush=True)
            await asyncio.get_running_loop().create_future()
    finally:
        await app.close()
    return ExitStatus.OK
