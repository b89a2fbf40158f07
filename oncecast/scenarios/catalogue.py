"""All scenarios by name, for the command line and the tests."""

from __future__ import annotations

from oncecast.scenarios.broadcast import BROADCAST
from oncecast.scenarios.chord import CHORD
from oncecast.scenarios.chord_cut import CHORD_CUT
from oncecast.scenarios.chord_steps import CHORD_STEPS
from oncecast.scenarios.hyparview import GOSSIP, HYPARVIEW
from oncecast.scenarios.paxos import PAXOS, PAXOS_LONG
from oncecast.scenarios.ring import RING
from oncecast.scenarios.scenario import Scenario
from oncecast.scenarios.scribe import SCRIBE
from oncecast.scenarios.service import SERVICE
from oncecast.scenarios.shuffle import SHUFFLE
from oncecast.scenarios.toolkit_election import ELECTION
from oncecast.scenarios.toolkit_mutex import MUTEX, MUTEX_LAMPORT
from oncecast.scenarios.toolkit_queue import QUEUE_FIFO, QUEUE_PAXOS

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        BROADCAST,
        CHORD,
        CHORD_CUT,
        CHORD_STEPS,
        ELECTION,
        GOSSIP,
        HYPARVIEW,
        MUTEX,
        MUTEX_LAMPORT,
        PAXOS,
        PAXOS_LONG,
        QUEUE_FIFO,
        QUEUE_PAXOS,
        RING,
        SCRIBE,
        SERVICE,
        SHUFFLE,
    )
}
