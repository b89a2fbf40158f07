"""A ring of three processes beside one node; docs/benchmarks.md tells what is compared.

python -m bench.ring [--only fan-out] [--rounds 5] [--messages 200000]
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bench.group.ours import Alone
from bench.peers import measures
from bench.peers.comparing import compare
from bench.ring.ours import Pulled, Ring

# By push to ten subscribers, half of one node's rate.
TARGETS = {"put": {}, "fan-out": {Alone.name: 0.5}, "latency": {}}
MEASURES = tuple(
    replace(each, targets=TARGETS[each.key]) for each in measures.MEASURES if each.key in TARGETS
)

if __name__ == "__main__":
    sys.exit(compare("bench.ring", __doc__ or "", (Ring, Alone, Pulled), MEASURES))
