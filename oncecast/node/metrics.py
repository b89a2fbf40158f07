"""What a node counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

from oncecast.node.assemble import VERSION, Parts
from oncecast.runtime.journal import Journal
from oncecast.runtime.options import Stats


class Metric(NamedTuple):
    name: str
    kind: str  # counter or gauge
    about: str
    value: float


def metrics(parts: Parts, journal: Journal, stats: Stats) -> Iterator[Metric]:
    for each in fields(Stats):
        name = f"oncecast_{each.name}_total"
        yield Metric(name, "counter", STATS[each.name], getattr(stats, each.name))
    registry = parts.service.machine.registry
    topics = registry.topics.values()
    gauges = {
        "topics": ("Topics.", len(topics)),
        "subscriptions": ("Subscriptions.", sum(len(each.subscriptions) for each in topics)),
        "producers": ("Producers remembered.", sum(len(each.producers) for each in topics)),
        "kept_bytes": ("Bytes of batches kept.", sum(each.index.size for each in topics)),
        "kept_batches": ("Batches kept.", len(registry.places)),
        "flows": ("Subscriptions that are being read.", len(parts.gateway.flows)),
        "log_first_record": ("First record in the log.", journal.log.first),
        "log_last_record": ("Last record in the log.", journal.log.last),
        "log_synced_record": ("Last record on disk.", journal.synced),
        "log_room_bytes": ("Bytes that can be stored before the disk is asked.", journal.log.room),
    }
    if parts.governor is not None:
        group = parts.governor.group
        leads = group.leader == group.me
        gauges |= {
            "leader": ("Whether this node leads its group.", int(leads)),
            "applied_slot": ("Last place in the group's order that is applied.", group.applied),
            "members": ("Replicas of the group.", len(group.config.members)),
            "suspected": ("Replicas that a leader does not hear.", len(group.silent) * leads),
        }
        elections = parts.governor.elections
        yield Metric("oncecast_elections_total", "counter", "Leaders heard of.", elections)
    for name, (about, value) in gauges.items():
        yield Metric(f"oncecast_{name}", "gauge", about, value)
    yield Metric("oncecast_refused_calls_total", "counter", REFUSED, parts.gateway.refused)


REFUSED = "Calls turned down before they were executed: too much at once, or a bad batch."
STATS = {
    "accepted": "Connections accepted.",
    "linked": "Links made to peers.",
    "messages_in": "Messages received.",
    "messages_out": "Messages sent.",
    "bytes_in": "Bytes received.",
    "bytes_out": "Bytes sent.",
    "bytes_dropped": "Bytes of messages for somebody who was away, slow or lost.",
    "hostile": "Connections closed for bytes that break the rules of the wire.",
    "crowded": "Connections turned away, because there were too many.",
    "overdue": "Handshakes and frames that were not finished in time.",
    "refused": "Handshakes turned down.",
    "silent": "Connections lost because the other side said nothing any more.",
    "slow": "Connections reset because too much was unsent.",
    "lost": "Links that the other side or the network closed.",
    "unreachable": "Links that could not be made.",
    "malformed": "Messages that are not in the sender's vocabulary.",
    "too_long": "Own messages that no frame may hold.",
    "steps": "Inputs worked off.",
    "records": "Records appended.",
    "syncs": "Groups of records made durable.",
}


def page(found: Iterator[Metric]) -> str:
    lines = [
        "# HELP oncecast_info The version that runs.",
        "# TYPE oncecast_info gauge",
        f'oncecast_info{{version="{VERSION}"}} 1',
    ]
    for name, kind, about, value in found:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join(lines) + "\n"
