"""Write the page of a recording to a file, or serve it until the command is stopped."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from oncecast.cli.connecting import complain
from oncecast.cli.signals import exit_on_signals
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.playback.recording import Recording

PORT_MAX = 65_535


def add_options(parser: argparse.ArgumentParser, web: str) -> None:
    """Add the options that choose between a file and a server."""
    parser.add_argument("--web", action="store_true", help=web)
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write the page to this self-contained HTML file"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=port,
        default=0,
        help="port of --web, or 0 for a free port (default: 0)",
    )


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 0 to {PORT_MAX}")
    return int(text)


def show(recording: Recording, *, html: Path | None, web: bool, port: int) -> int:
    """Write the page, serve it, or both. Return the exit status."""
    from oncecast.playback import page_writer
    from oncecast.playback.packing import pack

    page = page_writer.html(pack(recording), f"{recording.title} · oncecast playback")
    if html is not None:
        try:
            html.write_text(page, encoding="utf-8")
        except OSError as error:
            return complain(f"{html}: {error.strerror}; use a writable file")
        size = len(page.encode()) / 1e6
        print(f"{html}: {len(recording.steps):,} steps, {size:.1f} MB; open it in a browser")
    return serve(page, port) if web else ExitStatus.OK


def serve(page: str, port: int) -> int:
    from oncecast.cli.playback.server import PageServer

    try:
        server = PageServer(page, port)
    except OSError as error:
        return complain(f"port {port}: {error.strerror}; use --port 0 for a free port")
    with server, exit_on_signals():
        print(f"playback at {server.address} (Ctrl-C stops it)", flush=True)
        server.serve_forever()
    return ExitStatus.OK
