"""Run Zenoh with two peers: a publisher that blocks instead of dropping, and a callback."""

from __future__ import annotations

import json
from importlib.metadata import version
from threading import Event
from time import perf_counter, sleep
from typing import Any

from bench.streams.side import Counter, say, stamped
from bench.streams.stream_system import StreamSystem

KEY = "bench"
PATIENCE = 30.0


class Zenoh(StreamSystem):
    name = "Zenoh"
    setup = "reliable, congestion control block; publisher.put for each; a callback for each"
    share = 1.0
    modules = ("zenoh",)
    module = "zenoh_stream"

    def version(self) -> str:
        return version("eclipse-zenoh")


def session(**endpoints: list[str]) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", json.dumps(endpoints.get("listen", [])))
    config.insert_json5("connect/endpoints", json.dumps(endpoints.get("connect", [])))
    return zenoh.open(config)


def read(address: str, counter: Counter) -> None:
    done = Event()

    def hear(sample: Any) -> None:
        if counter.came(sample.payload.to_bytes()):
            done.set()

    with session(listen=[f"tcp/{address}"]) as opened:
        subscriber = opened.declare_subscriber(KEY, hear)
        say("ready")
        done.wait()
        subscriber.undeclare()


def write(address: str, count: int, size: int, pause: float) -> None:
    import zenoh

    with session(connect=[f"tcp/{address}"]) as opened:
        publisher = opened.declare_publisher(
            KEY,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )
        while not publisher.matching_status.matching:
            sleep(0.01)
        value, began = bytes(size), perf_counter()
        for _ in range(count):
            if pause:
                sleep(pause)
                value = stamped(size)
            publisher.put(value)
        say(str(began))
        sleep(PATIENCE)  # wait for a signal, because the reader may still be reading
