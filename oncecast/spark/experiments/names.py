"""Which experiments there are: known without Spark, which only running them needs."""

ABOUT = {
    "scribe-messages": "messages received in the Scribe layer",
    "convergence": "how long until all messages have reached all nodes",
    "chord-messages": "Chord messages sent, by the number of nodes",
    "load-balance": "how evenly topics are owned, with virtual positions too",
    "failures": "reliability under failures, structured against unstructured",
    "paxos": "one order at all replicas, through storms and elections",
}
