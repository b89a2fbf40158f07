"""Compare three nodes with one node and with a NATS cluster; see docs/benchmarks.md.

python -m bench.group [--only put] [--peers NATS] [--rounds 5] [--messages 200000]
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bench.group.nats_group import NatsGroup
from bench.group.ours import Alone, Group
from bench.peers import measures
from bench.peers.comparing import compare

PEERS = (Group, Alone, NatsGroup)

# A group may have half the rate and twice the latency of one node, because it syncs more disks.
TARGETS = {"put": {Alone.name: 0.5}, "latency": {Alone.name: 2.0}, "publishers": {}}
MEASURES = tuple(
    replace(each, targets=TARGETS[each.key]) for each in measures.MEASURES if each.key in TARGETS
)

if __name__ == "__main__":
    sys.exit(compare("bench.group", __doc__ or "", PEERS, MEASURES))
