"""`oncecast serve`: run a node until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from oncecast.errors import ExitStatus
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.node.config import Setting, Settings

FORMS = {"data": "DIR", "cluster": "NAME", "client_rate": "BYTES", "tls_clients": "MODE"}
FORMS |= {"log_level": "LEVEL", "log_format": "FORMAT"}
FORMS |= dict.fromkeys(
    ("listen", "http", "join", "advertise", "kafka", "kafka_advertise"), "HOST:PORT"
)


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from oncecast.node.config import TABLE

    serve = commands.add_parser("serve", help="run a node", description=__doc__)
    serve.add_argument("--config", metavar="FILE", help="TOML file with settings")
    for name, known in TABLE.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(known.default, bool):
            serve.add_argument(
                flag, action="store_true", default=argparse.SUPPRESS, dest=name, help=known.about
            )
        else:
            serve.add_argument(
                flag,
                metavar=_metavar(name, known),
                default=argparse.SUPPRESS,
                dest=name,
                help=f"{known.about} (default: {known.default})" if known.default else known.about,
            )
    serve.set_defaults(run=run)


def _metavar(name: str, known: Setting) -> str:
    """Return the placeholder for a value in the help: a unit or a format."""
    if name in FORMS:
        return FORMS[name]
    if isinstance(known.default, float):
        return "SECONDS"
    if isinstance(known.default, int):
        return "BYTES" if "bytes" in known.about else "N"
    return "FILE"


def run(arguments: argparse.Namespace) -> int:
    from oncecast.errors import OncecastError
    from oncecast.network.network import run as run_loop
    from oncecast.node.config import TABLE, load
    from oncecast.node.logs import log_to_stderr

    flags = {name: value for name, value in vars(arguments).items() if name in TABLE}
    try:
        settings = load(flags, os.environ, arguments.config)
        log_to_stderr(settings)
        run_loop(serve(settings))
    except OncecastError as error:
        print(f"oncecast serve: {escaped(str(error))}", file=sys.stderr)
        return error.exit_status
    return ExitStatus.OK


async def serve(settings: Settings) -> None:
    from oncecast.cli.serve.joining import is_of_ring
    from oncecast.node.ring_server import RingServer
    from oncecast.node.server import Server

    server = (RingServer if await is_of_ring(settings) else Server)(settings)
    if settings.kafka:
        from oncecast.kafka.beside import KafkaCompanion

        server.companions.append(KafkaCompanion(server))
    await server.run()
