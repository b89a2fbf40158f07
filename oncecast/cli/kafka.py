"""`oncecast kafka`: serve Kafka clients from a separate process."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    CONNECT_TIMEOUT,
    add_connection,
    add_flag,
    add_option,
    client_options,
    positive,
    report_error,
)
from oncecast.errors import ExitStatus, NotAllowed, OncecastError
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.kafka.listener import Listener
    from oncecast.network.tls import Tls

LISTEN = "127.0.0.1:9092"
CONNECTIONS_MAX = 1000


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kafka = commands.add_parser(
        "kafka",
        help="serve Kafka clients",
        description="Serve Kafka clients until SIGTERM or SIGINT. With --sasl, each client acts as "
        "its own user. Otherwise all clients act as the user that this process logs in as. See "
        "docs/kafka.md.",
    )
    add_option(kafka, "--listen", "HOST:PORT", "address for Kafka clients", LISTEN)
    kafka.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="address that Kafka clients connect to, if it differs from --listen",
    )
    add_option(
        kafka, "--connections-max", "N", "maximum number of connections", CONNECTIONS_MAX, positive
    )
    add_flag(kafka, "--no-auto-create", "do not create missing topics for clients")
    add_flag(kafka, "--sasl", "require a login from Kafka clients: SCRAM-SHA-256 or PLAIN")
    kafka.add_argument(
        "--listen-tls",
        nargs=2,
        metavar=("CERT", "KEY"),
        help="PEM files with the certificate that Kafka clients see, and its key; enables TLS",
    )
    add_flag(kafka, "--insecure", "accept clients from other machines without TLS or a login")
    add_connection(kafka)
    kafka.set_defaults(run=run, timeout=CONNECT_TIMEOUT)


def run(arguments: argparse.Namespace) -> int:
    from oncecast.network.network import run as run_loop

    try:
        return run_loop(serve(arguments))
    except OncecastError as error:
        return report_error(error)


async def serve(arguments: argparse.Namespace) -> int:
    from oncecast.cli.signals import ended_by_signals
    from oncecast.kafka.beside import mechanisms_of
    from oncecast.kafka.listener import Listener
    from oncecast.network.addresses import split

    host, port = split(arguments.listen)
    check_exposure(arguments, host)
    listener = Listener(
        client_options(arguments, None),
        host,
        port,
        advertised=split(arguments.advertise) if arguments.advertise else None,
        auto_create=not arguments.no_auto_create,
        connections_max=arguments.connections_max,
        tls=listener_tls(arguments),
        mechanisms=mechanisms_of(host, sasl=arguments.sasl, tls=bool(arguments.listen_tls)),
        log=note,
    )
    return await ended_by_signals(until_ended(listener), ended=ExitStatus.OK)


def check_exposure(arguments: argparse.Namespace, host: str) -> None:
    """Raise NotAllowed if other machines can reach the address without TLS or without a login."""
    from oncecast.network.addresses import is_loopback

    missing = [] if arguments.sasl else ["Kafka clients do not log in"]
    missing += [] if arguments.listen_tls else ["TLS is off"]
    if missing and not is_loopback(host) and not arguments.insecure:
        raise NotAllowed(
            f"{arguments.listen}: other machines can reach this address, but "
            + " and ".join(missing),
            "set --sasl and --listen-tls, listen on 127.0.0.1, or allow it with --insecure",
        )


def listener_tls(arguments: argparse.Namespace) -> Tls | None:
    if not arguments.listen_tls:
        return None
    from oncecast.network.tls import Tls

    certificate, key = arguments.listen_tls
    return Tls.from_files(certificate=certificate, key=key)


def note(text: str) -> None:
    print(f"oncecast kafka: {escaped(text)}", file=sys.stderr, flush=True)


async def until_ended(listener: Listener) -> int:
    async with listener:
        print(f"serving Kafka clients on {listener.address}", flush=True)
        raise await listener.ended
