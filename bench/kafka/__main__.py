"""Run `python -m bench.kafka torture` or `python -m bench.kafka speed`."""

from __future__ import annotations

import argparse
import sys

from bench.kafka import speed, torture


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    torture.add_options(commands.add_parser("torture", description=torture.__doc__))
    speed.add_options(commands.add_parser("speed", description=speed.__doc__))
    options = parser.parse_args()
    return torture.run(options) if options.command == "torture" else speed.run(options)


if __name__ == "__main__":
    sys.exit(main())
