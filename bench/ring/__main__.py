"""Compare a ring of three processes with one node; see docs/benchmarks.md.

python -m bench.ring [--only fan-out] [--rounds 5] [--messages 200000]
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bench.group.ours import Alone
from bench.peers import measures
from bench.peers.comparing import compare
from bench.ring.ours import Pulled, Ring

# Push to ten subscribers must reach half the rate of one node.
TARGETS = {"put": {}, "fan-out": {Alone.name: 0.5}, "latency": {}}
MEASURES = tuple(
    replace(each, targets=TARGETS[each.key]) for each in measures.MEASURES if each.key in TARGETS
)

if __name__ == "__main__":
    sys.exit(compare("bench.ring", __doc__ or "", (Ring, Alone, Pulled), MEASURES))
