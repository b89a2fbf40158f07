"""`oncecast cert init|node|client|show`: create a certificate authority (CA) and certificates."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_json, complain, positive, report_error, show
from oncecast.errors import ExitStatus, InvalidArgument, OncecastError
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from datetime import datetime

    from oncecast.cli.cert.making import Authority, Facts, Made

DIRECTORY = "certs"
CA, CA_KEY = "ca.pem", "ca.key"
CA_DAYS = 3650
PUBLIC, PRIVATE, PRIVATE_DIRECTORY = 0o644, 0o600, 0o700
NOT_INSTALLED = 'certificates need the cryptography package; run pip install "oncecast[tls]"'


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "create and show certificates for TLS"
    cert = commands.add_parser("cert", help=about, description=about)
    verbs = cert.add_subparsers(title="commands", metavar="COMMAND", required=True)

    init = verbs.add_parser("init", help="create a certificate authority (CA)")
    init.add_argument("--name", default="oncecast CA", help="CA name (default: %(default)s)")
    add_making(init, run_init, CA_DAYS)

    node = verbs.add_parser("node", help="create a node certificate")
    node.add_argument(
        "hosts",
        metavar="HOST",
        nargs="+",
        help="host names and IP addresses of the node, without ports",
    )
    node.add_argument("--name", help="base name of the files (default: the first host)")
    add_making(node, run_node)

    client = verbs.add_parser("client", help="create a client certificate")
    client.add_argument("client", metavar="NAME", help="name of the user or program")
    add_making(client, run_client)

    shown = verbs.add_parser(
        "show", help="show certificates; exit with status 1 if any has expired"
    )
    shown.add_argument(
        "files", metavar="FILE", type=Path, nargs="+", help="certificate in PEM format"
    )
    shown.add_argument(
        "--ca", metavar="FILE", type=Path, help="check that this CA signed the certificates"
    )
    add_json(shown)
    shown.set_defaults(run=lambda arguments: guarded(arguments, run_show))


def add_making(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    days: int | None = None,
) -> None:
    default = str(days) if days else "825, or until the CA expires"
    parser.add_argument(
        "--dir",
        metavar="DIR",
        type=Path,
        default=Path(DIRECTORY),
        help="directory for the CA and the new files (default: %(default)s)",
    )
    parser.add_argument(
        "--days",
        metavar="N",
        type=positive,
        default=days,
        help=f"days until the certificate expires (default: {default})",
    )
    add_json(parser)
    parser.set_defaults(run=lambda arguments: guarded(arguments, run))


def guarded(arguments: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Run a subcommand and return its exit status. Print errors on one line."""
    try:
        return run(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        return complain(NOT_INSTALLED)
    except FileNotFoundError as error:
        return complain(f"{error.filename}: {error.strerror}", ExitStatus.NOT_FOUND)
    except OncecastError as error:
        return report_error(error)


# init, node, client


def run_init(arguments: argparse.Namespace) -> int:
    from oncecast.cli.cert.making import make_authority

    made = make_authority(arguments.name, arguments.days, now())
    return keep(arguments, made, CA, CA_KEY)


def run_node(arguments: argparse.Namespace) -> int:
    made = authority(arguments.dir).node(arguments.hosts, arguments.days, now())
    name = file_name(arguments.name or arguments.hosts[0])
    return keep(arguments, made, f"node-{name}.pem", f"node-{name}.key")


def run_client(arguments: argparse.Namespace) -> int:
    made = authority(arguments.dir).client(arguments.client, arguments.days, now())
    name = file_name(arguments.client)
    return keep(arguments, made, f"client-{name}.pem", f"client-{name}.key")


def now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC).replace(microsecond=0)


def authority(directory: Path) -> Authority:
    from oncecast.cli.cert.making import Authority

    try:
        return Authority(read(directory / CA), read(directory / CA_KEY))
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"{error.filename}: {error.strerror}",
            "run `oncecast cert init`, or set --dir to the CA directory",
        ) from error


def file_name(name: str) -> str:
    """Return the name. Raise InvalidArgument if it could point outside the directory."""
    if "/" in name or "\0" in name or len(os.fsencode(name)) > 200:
        raise InvalidArgument(
            f"{name!r} is not a valid file name", "set --name to a name without slashes"
        )
    return name


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidArgument(
            f"{file}: {error.strerror or error}", "use a readable file"
        ) from error


def keep(arguments: argparse.Namespace, made: Made, certificate: str, key: str) -> int:
    """Write both files or neither, print their names, and return the exit status."""
    from oncecast.cli.cert.making import facts_of

    directory: Path = arguments.dir
    try:
        directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        create(directory / key, made.key, PRIVATE)
        try:
            create(directory / certificate, made.certificate, PUBLIC)
        except OSError:
            (directory / key).unlink()
            raise
    except OSError as error:
        raise unwritable(error) from error
    facts = {"certificate": str(directory / certificate), "key": str(directory / key)}
    ends = facts_of(made.certificate).ends
    text = f"{facts['certificate']} and {facts['key']}, valid until {ends:%Y-%m-%d}"
    show(arguments, {**facts, "expires": ends.isoformat()}, escaped(text))
    return ExitStatus.OK


def create(file: Path, content: bytes, mode: int) -> None:
    """Create a file with exactly this mode. Raise FileExistsError if it already exists."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    try:
        with os.fdopen(opened, "wb") as written:
            os.fchmod(opened, mode)
            written.write(content)
            written.flush()
            os.fsync(opened)
    except OSError:
        with suppress(OSError):
            file.unlink()
        raise


def unwritable(error: OSError) -> InvalidArgument:
    if isinstance(error, FileExistsError):
        remedy = "move it aside, or choose another --dir or name; files are never overwritten"
    else:
        remedy = "choose a directory that you can write to"
    return InvalidArgument(f"{error.filename}: {error.strerror or error}", remedy)


# show


def run_show(arguments: argparse.Namespace) -> int:
    from oncecast.cli.cert.making import facts_of

    ca = read(arguments.ca) if arguments.ca else None
    status: int = ExitStatus.OK
    for file in arguments.files:
        try:
            facts = facts_of(read(file), ca)
        except InvalidArgument as error:
            raise error.within(str(file)) from error
        usable = facts.begins <= now() < facts.ends and facts.signed_by_ca is not False
        status = status if usable else ExitStatus.FAILURE
        show(arguments, as_fields(file, facts), in_words(file, facts))
    return status


def as_fields(file: Path, facts: Facts) -> dict[str, object]:
    return {
        "file": str(file),
        "kind": facts.kind,
        "name": facts.name,
        "hosts": list(facts.hosts),
        "issuer": facts.issuer,
        "begins": facts.begins.isoformat(),
        "expires": facts.ends.isoformat(),
        "days_left": (facts.ends - now()).days,
        "sha256": facts.fingerprint,
        "signed_by_ca": facts.signed_by_ca,
    }


def in_words(file: Path, facts: Facts) -> str:
    left = (facts.ends - now()).days
    state = "expired" if facts.ends <= now() else f"{left} days left"
    if facts.begins > now():
        state = f"not valid before {facts.begins:%Y-%m-%d %H:%M} UTC"
    lines = [
        ("kind", facts.kind),
        ("name", facts.name),
        ("hosts", ", ".join(facts.hosts)),
        ("issuer", facts.issuer),
        ("expires", f"{facts.ends:%Y-%m-%d %H:%M} UTC, {state}"),
        ("sha256", facts.fingerprint),
        ("signed by", {None: "", True: "this CA", False: "another CA"}[facts.signed_by_ca]),
    ]
    rows = [f"  {name:<10}{escaped(value)}" for name, value in lines if value]
    return "\n".join([escaped(str(file)), *rows])
