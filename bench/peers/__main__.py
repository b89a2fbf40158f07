"""Compare oncecast with Redis, NATS and RabbitMQ in one run; see docs/benchmarks.md.

python -m bench.peers [--only put get] [--peers Redis] [--rounds 5] [--messages 500000]
"""

from __future__ import annotations

import sys

from bench.peers.comparing import compare
from bench.peers.measures import MEASURES
from bench.peers.nats_jetstream import Nats
from bench.peers.ours import Oncecast
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.redis_streams import Redis

PEERS = (Oncecast, Redis, Nats, RabbitMQ)

if __name__ == "__main__":
    sys.exit(compare("bench.peers", __doc__ or "", PEERS, MEASURES))
