"""Process metrics in the Prometheus text format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import NamedTuple

import msgspec

from oncecast.broker.gateway import Gateway
from oncecast.broker.index import Index
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.kernel.histogram import BOUNDS, Histogram
from oncecast.network.options import Stats
from oncecast.node.assemble import VERSION
from oncecast.node.assemble_ring import RingParts
from oncecast.node.http import Page
from oncecast.node.replica import Replica

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Maximum numbers of topics and subscriptions with metrics of their own. Writing the page takes
# about 10 ms at these limits, and the node does nothing else meanwhile.
TOPICS_MAX, SUBSCRIPTIONS_MAX = 250, 500

Labels = tuple[tuple[str, str], ...]
Gauges = dict[str, tuple[str, float]]  # description and value of each gauge, by name


class Metric(NamedTuple):
    name: str
    kind: str
    about: str
    value: float
    labels: Labels = ()
    suffix: str = ""  # end of the sample's name, for a histogram


def counters(stats: Stats) -> Iterator[Metric]:
    for each in msgspec.structs.fields(Stats):
        name = f"oncecast_{each.name}_total"
        yield Metric(name, COUNTER, STATS[each.name], getattr(stats, each.name))


def replica_metrics(replica: Replica, group: str = "") -> Iterator[Metric]:
    """Yield the metrics of a replica. `group` is empty if the process has a single group."""
    parts = replica.parts
    labels = (("group", group),) if group else ()
    elections = parts.governor.elections
    yield Metric("oncecast_elections_total", COUNTER, "Leader changes observed.", elections, labels)
    for name, (about, value) in (service_gauges(replica) | paxos_gauges(replica)).items():
        yield Metric(f"oncecast_{name}", GAUGE, about, value, labels)
    gateway = parts.gateway
    yield Metric("oncecast_refused_calls_total", COUNTER, REFUSED, gateway.refused, labels)
    about = "Time from the arrival of a batch until it is stored on a majority."
    yield from histogram("oncecast_put_seconds", about, gateway.usage.stored, labels)
    if replica.runtime.sync_times is not None:
        about = "Time to write records to the log and to sync it."
        yield from histogram("oncecast_sync_seconds", about, replica.runtime.sync_times, labels)
    if replica.group.leader == replica.group.me:
        registry = parts.service.machine.registry
        yield from topics_metrics(registry.topics, gateway, time.time(), labels)


def histogram(name: str, about: str, found: Histogram, labels: Labels) -> Iterator[Metric]:
    total: float = 0
    for bound, count in zip((*BOUNDS, inf), found.counts, strict=True):
        total += count
        le = (*labels, ("le", "+Inf" if bound == inf else f"{bound:g}"))
        yield Metric(name, HISTOGRAM, about, total, le, "_bucket")
    yield Metric(name, HISTOGRAM, about, found.total, labels, "_sum")
    yield Metric(name, HISTOGRAM, about, total, labels, "_count")


def topics_metrics(
    topics: Mapping[str, Topic], gateway: Gateway, wall: float, labels: Labels
) -> Iterator[Metric]:
    """Yield the metrics of each topic and subscription that this leader serves, up to a limit."""
    shown = list(islice(topics.items(), TOPICS_MAX))
    yield Metric(
        "oncecast_topics_without_metrics",
        GAUGE,
        f"Topics without metrics of their own, because at most {TOPICS_MAX} have them.",
        len(topics) - len(shown),
        labels,
    )
    left = SUBSCRIPTIONS_MAX
    for name, topic in shown:
        index, named = topic.index, (*labels, ("topic", name))
        for metric, kind, count in (
            ("topic_messages_total", COUNTER, index.next),
            ("topic_kept_messages", GAUGE, index.next - index.first),
            ("topic_kept_bytes", GAUGE, index.size),
        ):
            yield Metric(f"oncecast_{metric}", kind, TOPICS[metric], count, named)
        for subscription, found in islice(topic.subscriptions.items(), left):
            left -= 1
            values = subscription_values(index, found, wall)
            if gateway.flows.has_lost(name, subscription, found.epoch):
                values["attached"] = 0.0
            counted = gateway.usage.delivered.get((name, subscription))
            if counted is not None:
                values["delivered_messages_total"] = counted.messages
                values["delivered_bytes_total"] = counted.bytes
                values["redelivered_messages_total"] = counted.redelivered
            for metric, value in values.items():
                kind = COUNTER if metric.endswith("_total") else GAUGE
                full, about = f"oncecast_subscription_{metric}", SUBSCRIPTIONS[metric]
                yield Metric(full, kind, about, value, (*named, ("subscription", subscription)))


def subscription_values(index: Index, found: Subscription, wall: float) -> dict[str, float]:
    """Return the values of a subscription, by name."""
    queue, oldest = found.queue, max(found.cursor, index.first)
    if queue is None:
        lag = index.next - oldest
        values = {"attached": float(bool(found.incarnation))}
    else:
        lag = len(queue.open) + index.next - max(queue.next, index.first)
        dead = len(queue.dead)
        values = {
            "workers": float(sum(1 for each in queue.workers.values() if each.held)),
            "in_flight_messages": float(queue.leased),
            "waiting_retries": float(len(queue.open) - queue.leased - dead),
        }
    appended = index.appended(oldest) if lag else 0
    late = max(0.0, wall - appended / 1e6) if appended else 0.0
    return {
        "acknowledged_messages_total": found.cursor,
        "lag_messages": lag,
        "lag_seconds": late,
        **values,
    }


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


TOPICS = {
    "topic_messages_total": "Messages put in the topic since it was created.",
    "topic_kept_messages": "Messages that the topic keeps.",
    "topic_kept_bytes": "Bytes of the batches that the topic keeps.",
}
SUBSCRIPTIONS = {
    "acknowledged_messages_total": "Messages before the cursor of the subscription.",
    "lag_messages": "Messages that are not acknowledged.",
    "lag_seconds": "Age of the oldest message that is not acknowledged.",
    "attached": "Whether a reader is attached.",
    "workers": "Workers that hold jobs.",
    "in_flight_messages": "Messages that workers hold.",
    "waiting_retries": "Messages that wait for another delivery.",
    "delivered_messages_total": "Messages sent to readers since this node became the leader.",
    "delivered_bytes_total": "Bytes sent to readers since this node became the leader.",
    "redelivered_messages_total": "Messages sent that an earlier reader may have got.",
}


def page(found: Iterable[Metric]) -> Page:
    """Return the /metrics page, with all samples of a metric together."""
    lines = {
        "oncecast_info": [
            "# HELP oncecast_info The running version.",
            "# TYPE oncecast_info gauge",
            f'oncecast_info{{version="{VERSION}"}} 1',
        ]
    }
    for name, kind, about, value, labels, suffix in found:
        head = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        inner = ",".join(f'{label}="{quoted(text)}"' for label, text in labels)
        label = f"{{{inner}}}" if inner else ""
        lines.setdefault(name, head).append(f"{name}{suffix}{label} {value}")
    body = "".join(f"{each}\n" for of_name in lines.values() for each in of_name)
    return Page(200, "text/plain; version=0.0.4", body)


def quoted(text: str) -> str:
    """Return a label value in the escaped form of the text format."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
