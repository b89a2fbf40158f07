"""What a process counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import NamedTuple

from oncecast.network.options import Stats
from oncecast.node.assemble import VERSION
from oncecast.node.assemble_ring import RingParts
from oncecast.node.http import Page
from oncecast.node.replica import Replica

COUNTER, GAUGE = "counter", "gauge"


class Metric(NamedTuple):
    name: str
    kind: str
    about: str
    value: float
    group: str = ""  # whose it is, where there are several


def counters(stats: Stats) -> Iterator[Metric]:
    for each in fields(Stats):
        name = f"oncecast_{each.name}_total"
        yield Metric(name, COUNTER, STATS[each.name], getattr(stats, each.name))


def replica_metrics(replica: Replica, group: str = "") -> Iterator[Metric]:
    parts, journal = replica.parts, replica.journal
    registry = parts.service.machine.registry
    topics = registry.topics.values()
    correction = parts.service.time.correction(registry.clock, registry.limits.clock_step_us)
    gauges = {
        "topics": ("Topics.", len(topics)),
        "subscriptions": ("Subscriptions.", sum(len(each.subscriptions) for each in topics)),
        "producers": ("Producers remembered.", sum(len(each.producers) for each in topics)),
        "clock_disputed_seconds": (
            "How far stamps are ahead of the trusted time; 0 without a dispute.",
            registry.clock.disputed_us / 1e6,
        ),
        "clock_correction_seconds": (
            "What this leader adds to its wall clock, because its group outvotes it.",
            correction / 1e6,
        ),
        "kept_bytes": ("Bytes of batches kept.", sum(each.index.size for each in topics)),
        "kept_batches": ("Batches kept.", len(registry.live_slots)),
        "flows": ("Subscriptions that are being read.", len(parts.gateway.flows)),
        "log_first_record": ("First record in the log.", journal.log.first),
        "log_last_record": ("Last record in the log.", journal.log.last),
        "log_synced_record": ("Last record on disk.", journal.synced),
        "log_room_bytes": ("Bytes that can be stored before the disk is asked.", journal.log.room),
    }
    paxos = replica.group
    leads = paxos.leader == paxos.me
    gauges |= {
        "leader": ("Whether this node leads its group.", int(leads)),
        "applied_slot": ("Last place in the group's order that is applied.", paxos.applied),
        "members": ("Replicas of the group.", len(paxos.config.members)),
        "suspected": ("Replicas that a leader does not hear.", len(paxos.silent) * leads),
    }
    elections = parts.governor.elections
    yield Metric("oncecast_elections_total", COUNTER, "Leaders heard of.", elections, group)
    for name, (about, value) in gauges.items():
        yield Metric(f"oncecast_{name}", GAUGE, about, value, group)
    refused = parts.gateway.refused
    yield Metric("oncecast_refused_calls_total", COUNTER, REFUSED, refused, group)


def ring_metrics(parts: RingParts) -> Iterator[Metric]:
    """Of the ring, as this process knows it."""
    roster, owner_lookup = parts.roster, parts.owner_lookup
    yield Metric("oncecast_ring_processes", GAUGE, "Processes of the ring.", len(roster.cards))
    yield Metric("oncecast_ring_groups", GAUGE, "Groups of the ring.", len(roster.groups))
    yield Metric(
        "oncecast_ring_searches_total", COUNTER, "Owners looked for.", owner_lookup.searched
    )
    yield Metric("oncecast_ring_hops_total", COUNTER, "Hops of these searches.", owner_lookup.hops)


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


def page(found: Iterable[Metric]) -> Page:
    """Each name once, and under it what each group has of it."""
    lines = {
        "oncecast_info": [
            "# HELP oncecast_info The version that runs.",
            "# TYPE oncecast_info gauge",
            f'oncecast_info{{version="{VERSION}"}} 1',
        ]
    }
    for name, kind, about, value, group in found:
        head = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        label = f'{{group="{group}"}}' if group else ""
        lines.setdefault(name, head).append(f"{name}{label} {value}")
    body = "".join(f"{each}\n" for of_name in lines.values() for each in of_name)
    return Page(200, "text/plain; version=0.0.4", body)
