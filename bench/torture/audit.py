"""Compare the contents of topics with the acknowledgements and deliveries that clients recorded."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import oncecast
from bench.torture.client import digest, lines

SHOWN_MOST = 20


@dataclass
class Findings:
    messages: int = 0  # number of messages in all topics
    acknowledged: int = 0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    examples: list[str] = field(default_factory=list)

    def fault(self, kind: str, example: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < SHOWN_MOST:
            self.examples.append(f"{kind}: {example}")


async def contents(server: str, topics: list[str]) -> dict[str, list[bytes]]:
    """Return all values of each topic, by offset."""
    found: dict[str, list[bytes]] = {}
    async with oncecast.connect(server, timeout=60.0) as client:
        for topic in topics:
            found[topic] = []
            async for each in client.scan(topic):
                assert each.offset == len(found[topic]), f"{topic}: a gap at {each.offset}"
                found[topic] += [message.value for message in each.messages()]
    return found


def audit(directory: Path, topics: dict[str, list[bytes]]) -> Findings:
    findings = Findings(messages=sum(map(len, topics.values())))
    for topic, values in topics.items():
        _check_log(findings, topic, values)
    _check_puts(findings, lines(directory, "puts"), topics)
    _check_gets(findings, lines(directory, "gets"), topics)
    return findings


def _check_log(findings: Findings, topic: str, values: list[bytes]) -> None:
    """Check that each message is stored once, and that each writer's numbers increase."""
    last: dict[bytes, int] = defaultdict(lambda: -1)
    seen: set[bytes] = set()
    for offset, value in enumerate(values):
        writer, number, _ = value.split(b"/", 2)
        if value in seen:
            findings.fault("doubled", f"{topic}@{offset}: {value!r}")
        elif int(number) < last[writer]:
            findings.fault("out_of_order", f"{topic}@{offset}: {value!r} after {last[writer]}")
        seen.add(value)
        last[writer] = max(last[writer], int(number))


def _check_puts(
    findings: Findings, puts: list[dict[str, Any]], topics: dict[str, list[bytes]]
) -> None:
    for line in puts:
        values = topics[line["topic"]]
        findings.acknowledged += len(line["offsets"])
        for number, offset in enumerate(line["offsets"], line["first"]):
            prefix = f"{line['writer']}/{number}/".encode()
            if offset >= len(values) or not values[offset].startswith(prefix):
                findings.fault("lost", f"{line['topic']}@{offset}: {prefix!r} was acknowledged")


def _check_gets(
    findings: Findings, gets: list[dict[str, Any]], topics: dict[str, list[bytes]]
) -> None:
    """Check that each reader, over all restarts, received the whole topic once and in order."""
    results: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in sorted(gets, key=lambda line: int(line["first"])):
        found = results[line["reader"], line["topic"]]
        findings.delivered += len(line["digests"])
        if line["first"] != len(found):
            kind = "doubled" if line["first"] < len(found) else "lost"
            findings.fault(kind, f"{line['reader']}, {line['topic']}: {line['first']} came next")
        found += line["digests"]
    for (reader, topic), digests in results.items():
        expected = [digest(value) for value in topics[topic]]
        if digests != expected:
            findings.fault("lost", f"{reader}, {topic}: {len(digests)} of {len(expected)} values")


def main() -> int:
    """Audit recorded files: python -m bench.torture.audit SERVER DIRECTORY TOPIC..."""
    server, directory, *topics = sys.argv[1:]
    found = asyncio.run(contents(server, topics))
    print(json.dumps(asdict(audit(Path(directory), found))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
