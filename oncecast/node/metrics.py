"""Process metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from oncecast.network.options import Stats
from oncecast.node.assemble import VERSION
from oncecast.node.assemble_ring import RingParts
from oncecast.node.http import Page
from oncecast.node.replica import Replica

COUNTER, GAUGE = "counter", "gauge"

Gauges = dict[str, tuple[str, float]]  # description and value of each gauge, by name


class Metric(NamedTuple):
    name: str
    kind: str
    about: str
    value: float
    group: str = ""  # value of the label `group`; empty if the process has a single group


def counters(stats: Stats) -> Iterator[Metric]:
    for each in msgspec.structs.fields(Stats):
        name = f"oncecast_{each.name}_total"
        yield Metric(name, COUNTER, STATS[each.name], getattr(stats, each.name))


def replica_metrics(replica: Replica, group: str = "") -> Iterator[Metric]:
    parts = replica.parts
    elections = parts.governor.elections
    yield Metric("oncecast_elections_total", COUNTER, "Leader changes observed.", elections, group)
    for name, (about, value) in (service_gauges(replica) | paxos_gauges(replica)).items():
        yield Metric(f"oncecast_{name}", GAUGE, about, value, group)
    refused = parts.gateway.refused
    yield Metric("oncecast_refused_calls_total", COUNTER, REFUSED, refused, group)


def service_gauges(replica: Replica) -> Gauges:
    parts, journal = replica.parts, replica.journal
    registry = parts.service.machine.registry
    topics = registry.topics.values()
    correction = parts.service.time.correction(registry.clock, registry.limits.clock_step_us)
    return {
        "feature_level": ("Feature level of the group, decided in its log.", registry.level),
        "feature_level_known": (
            "Highest feature level that this node supports.",
            replica.group.log.level_of(replica.group.self_as_member),
        ),
        "topics": ("Topics.", len(topics)),
        "subscriptions": ("Subscriptions.", sum(len(each.subscriptions) for each in topics)),
        "producers": (
            "Producers whose last sequence number is stored.",
            sum(len(each.producers) for each in topics),
        ),
        "clock_disputed_seconds": (
            "Seconds by which timestamps are ahead of the trusted time; 0 if the clocks agree.",
            registry.clock.disputed_us / 1e6,
        ),
        "clock_correction_seconds": (
            "Seconds that this leader adds to its wall clock to agree with its group.",
            correction / 1e6,
        ),
        "kept_bytes": ("Total bytes of stored batches.", sum(each.index.size for each in topics)),
        "kept_batches": ("Stored batches.", len(registry.live_slots)),
        "flows": ("Subscriptions with a reader.", len(parts.gateway.flows)),
        "log_first_record": ("First record in the log.", journal.log.first),
        "log_last_record": ("Last record in the log.", journal.log.last),
        "log_synced_record": ("Last record on disk.", journal.synced),
        "log_room_bytes": (
            "Bytes of disk space allocated for new records.",
            journal.log.free_bytes,
        ),
    }


def paxos_gauges(replica: Replica) -> Gauges:
    paxos = replica.group
    leads = paxos.leader == paxos.me
    return {
        "leader": ("Whether this node leads its group.", int(leads)),
        "applied_slot": ("Last applied slot of the group's log.", paxos.applied),
        "members": ("Members in the group.", len(paxos.config.members)),
        "suspected": ("Members that this leader cannot reach.", len(paxos.silent) * leads),
    }


def ring_metrics(parts: RingParts) -> Iterator[Metric]:
    """Return the ring metrics, as seen by this process."""
    roster, owner_lookup = parts.roster, parts.owner_lookup
    yield Metric("oncecast_ring_processes", GAUGE, "Processes in the ring.", len(roster.cards))
    yield Metric("oncecast_ring_groups", GAUGE, "Groups in the ring.", len(roster.groups))
    yield Metric(
        "oncecast_ring_searches_total", COUNTER, "Topic owner lookups.", owner_lookup.searched
    )
    yield Metric("oncecast_ring_hops_total", COUNTER, "Hops in owner lookups.", owner_lookup.hops)


REFUSED = "Calls refused before execution, because of a limit or an invalid batch or name."
STATS = {
    "accepted": "Connections accepted.",
    "linked": "Links established to peers.",
    "messages_in": "Messages received.",
    "messages_out": "Messages sent.",
    "bytes_in": "Bytes received.",
    "bytes_out": "Bytes sent.",
    "bytes_dropped": "Bytes of messages dropped because the peer was disconnected or slow.",
    "hostile": "Connections closed for protocol violations.",
    "crowded": "Connections closed because a connection limit was reached.",
    "overdue": "Handshakes and frames that timed out.",
    "refused": "Handshakes refused by either side.",
    "silent": "Connections closed because the peer was silent.",
    "slow": "Connections reset because too many bytes were unsent.",
    "lost": "Links closed by the peer or the network.",
    "unreachable": "Failed attempts to connect to a peer.",
    "malformed": "Messages that could not be decoded.",
    "too_long": "Messages not sent because they exceed frame_bytes_max.",
    "steps": "Inputs processed.",
    "records": "Records appended.",
    "syncs": "Groups of records written to disk.",
}


def page(found: Iterable[Metric]) -> Page:
    """Return the /metrics page, with the values of all groups under each name."""
    lines = {
        "oncecast_info": [
            "# HELP oncecast_info The running version.",
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
