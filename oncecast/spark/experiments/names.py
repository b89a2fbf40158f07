"""The names of the experiments. This module does not import Spark."""

ABOUT = {
    "scribe-messages": "messages received in the Scribe layer",
    "convergence": "time until all messages have reached all nodes",
    "chord-messages": "Chord messages sent, by number of nodes",
    "load-balance": "distribution of topics over nodes, with and without virtual positions",
    "failures": "reliability under failures, structured and unstructured",
    "paxos": "one order at all replicas, through storms and elections",
}
