"""Run Cyclone DDS, reliable and keep-all, through its Python interface."""

from __future__ import annotations

import os
from dataclasses import make_dataclass
from importlib.metadata import version
from time import perf_counter, sleep
from typing import Any

from bench.streams.side import Counter, say, stamped
from bench.streams.stream_system import StreamSystem

TOPIC = "bench"
MANY = 1000  # number of samples per take
PATIENCE = 30.0
# Loopback often has no multicast, so processes find each other by port.
CONFIG = """<CycloneDDS><Domain>
<General><Interfaces><NetworkInterface name="lo"/></Interfaces>
<AllowMulticast>false</AllowMulticast></General>
<Discovery><ParticipantIndex>auto</ParticipantIndex>
<Peers><Peer address="127.0.0.1"/></Peers></Discovery>
</Domain></CycloneDDS>"""


class CycloneDDS(StreamSystem):
    name = "Cyclone DDS"
    setup = (
        "reliable, keep-all, over loopback; an array of octets, which is faster than a sequence; "
        "writer.write for each; a wait set, and take of 1000"
    )
    share = 0.1
    modules = ("cyclonedds",)
    module = "cyclone_stream"

    def version(self) -> str:
        return version("cyclonedds")


def topic(address: str, size: int) -> tuple[Any, Any, Any, Any]:
    """Return a participant in its own domain, its topic, the QoS and the sample type."""
    os.environ["CYCLONEDDS_URI"] = CONFIG
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import IdlStruct
    from cyclonedds.idl.types import array, uint8
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    octets: Any = array
    kind = make_dataclass("Sample", [("data", octets[uint8, size])], bases=(IdlStruct,))
    qualities = Qos(Policy.Reliability.Reliable(duration(seconds=PATIENCE)), Policy.History.KeepAll)
    participant = DomainParticipant(int(address.rpartition(":")[2]) % 230)
    return participant, Topic(participant, TOPIC, kind, qos=qualities), qualities, kind


def read(address: str, counter: Counter) -> None:
    participant, made, qualities, _ = topic(address, counter.size)
    from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.sub import DataReader
    from cyclonedds.util import duration

    reader = DataReader(participant, made, qos=qualities)
    waiting = WaitSet(participant)
    any_state = SampleState.Any | ViewState.Any | InstanceState.Any
    waiting.attach(ReadCondition(reader, any_state))
    say("ready")
    while True:
        waiting.wait(duration(seconds=PATIENCE))
        for sample in reader.take(MANY):
            if counter.came(sample.data):
                return


def write(address: str, count: int, size: int, pause: float) -> None:
    participant, made, qualities, kind = topic(address, size)
    from cyclonedds.pub import DataWriter

    writer = DataWriter(participant, made, qos=qualities)
    while not writer.get_matched_subscriptions():
        sleep(0.01)
    value, began = bytes(size), perf_counter()
    for _ in range(count):
        if pause:
            sleep(pause)
            value = stamped(size)
        writer.write(kind(value))
    say(str(began))
    sleep(PATIENCE)  # wait for a signal, because the reader may still be reading
