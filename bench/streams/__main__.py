"""Compare streams with Cyclone DDS and Zenoh in one run; see docs/benchmarks.md.

python -m bench.streams [--only flow] [--peers Zenoh] [--rounds 5] [--messages 300000]
"""

from __future__ import annotations

import sys

from bench.peers.comparing import compare
from bench.peers.measures import Measure
from bench.streams.cyclone_stream import CycloneDDS
from bench.streams.ours import Oncecast
from bench.streams.stream_system import PAUSE, flow, way
from bench.streams.zenoh_stream import Zenoh

PEERS = (Oncecast, CycloneDDS, Zenoh)
TARGETS = dict.fromkeys((CycloneDDS.name, Zenoh.name), 1.5)
MEASURES = (
    Measure("flow", "reliable stream, 100 B", "samples/s", flow, 1.0, targets=TARGETS),
    Measure(
        "way",
        "write to take, p50, 100 B",
        "us",
        way,
        0.001,
        less_is_better=True,
        alike=True,
        pause=PAUSE,
        targets=TARGETS,
    ),
)

if __name__ == "__main__":
    sys.exit(compare("bench.streams", __doc__ or "", PEERS, MEASURES))
