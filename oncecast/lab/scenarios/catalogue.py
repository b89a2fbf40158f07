"""All scenarios by name, for the command line and the tests."""

from __future__ import annotations

from oncecast.lab.scenarios.broadcast import BROADCAST
from oncecast.lab.scenarios.chord import CHORD
from oncecast.lab.scenarios.chord_cut import CHORD_CUT
from oncecast.lab.scenarios.chord_steps import CHORD_STEPS
from oncecast.lab.scenarios.election import ELECTION
from oncecast.lab.scenarios.hostile import HOSTILE
from oncecast.lab.scenarios.hyparview import GOSSIP, HYPARVIEW
from oncecast.lab.scenarios.intruders import INTRUDERS
from oncecast.lab.scenarios.kafka import KAFKA
from oncecast.lab.scenarios.mutex import MUTEX, MUTEX_LAMPORT
from oncecast.lab.scenarios.paxos import PAXOS, PAXOS_LONG
from oncecast.lab.scenarios.queue import QUEUE_FIFO, QUEUE_PAXOS
from oncecast.lab.scenarios.ring import RING
from oncecast.lab.scenarios.ring_transactions import RING_TRANSACTIONS
from oncecast.lab.scenarios.scenario import Scenario
from oncecast.lab.scenarios.scribe import SCRIBE
from oncecast.lab.scenarios.service import SERVICE
from oncecast.lab.scenarios.shuffle import SHUFFLE
from oncecast.lab.scenarios.workers import WORKERS

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        BROADCAST,
        CHORD,
        CHORD_CUT,
        CHORD_STEPS,
        ELECTION,
        GOSSIP,
        HOSTILE,
        HYPARVIEW,
        INTRUDERS,
        KAFKA,
        MUTEX,
        MUTEX_LAMPORT,
        PAXOS,
        PAXOS_LONG,
        QUEUE_FIFO,
        QUEUE_PAXOS,
        RING,
        RING_TRANSACTIONS,
        SCRIBE,
        SERVICE,
        SHUFFLE,
        WORKERS,
    )
}
