"""Run all clients, and print a table: `python -m bench.interop [--only NAME] [--json FILE]`.

The exit status is 1 if a client that ran has failed. A client that this machine cannot get is
named, and does not count as a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.interop.clients import CLIENTS, Client
from bench.interop.getting import Missing
from oncecast.testing import Node

FEATURES = ("put", "get", "group", "transactions", "admin", "load")
HOME = Path(".venv/interop")


def tried(client: Client, home: Path) -> tuple[dict[str, str], list[str]]:
    """Return the outcome of each feature, and the failures."""
    try:
        checks = client.prepare(home)
    except Missing as missing:
        return {"missing": str(missing)}, []
    outcomes: dict[str, str] = {}
    failures: list[str] = []
    done: dict[object, str] = {}  # one check may show several features
    with Node() as node:
        for feature, check in checks.items():
            if check not in done:
                done[check] = "yes"
                try:
                    check(node.kafka)
                except Exception as error:  # noqa: BLE001  # any failure of a client is reported
                    done[check] = "FAILED"
                    failures.append(f"{client.name}, {feature}: {str(error) or repr(error)}")
            outcomes[feature] = done[check]
    return outcomes, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run only the clients whose name contains this")
    parser.add_argument("--home", type=Path, default=HOME, help="directory for installed clients")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    arguments = parser.parse_args()
    home = arguments.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    table: dict[str, dict[str, str]] = {}
    failed: list[str] = []
    for client in CLIENTS:
        if arguments.only.lower() in client.name.lower():
            began = time.monotonic()
            table[client.name], failures = tried(client, home)
            failed += failures
            print(f"{client.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    show(table)
    for each in failed:
        print(f"failed: {each}")
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))
    return 1 if failed else 0


def show(table: dict[str, dict[str, str]]) -> None:
    print(f"{'client':26}" + "".join(f"{each:>14}" for each in FEATURES))
    for name, outcomes in table.items():
        if "missing" in outcomes:
            print(f"{name:26}  not available: {outcomes['missing']}")
        else:
            print(f"{name:26}" + "".join(f"{outcomes.get(each, '-'):>14}" for each in FEATURES))


if __name__ == "__main__":
    sys.exit(main())
