"""Measure the frames per second of the playback page in Chromium, without a graphics processor.

    python -m bench.playback

It records a Paxos storm with 5 replicas, and a Chord ring with 1,000 nodes. It then moves through
80 % of each run, one position per frame.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.catalogue import SCENARIOS
from oncecast.lab.scenarios.chord import ring_builder
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.lab.scenarios.scenario import run
from oncecast.playback.packing import pack
from oncecast.playback.page_writer import html
from oncecast.playback.recorder import Recorder
from oncecast.playback.recording import Recording
from tests.browser import browser, tab

FRAMES = 240
RING, RING_SECONDS, CRASHES = 1000, 4.0, 10
SCRUB = """async (frames) => {
  const page = window.playback, times = [], costs = [];
  const draw = page.draw.bind(page);
  page.draw = (now) => {
    const begin = performance.now();
    draw(now);
    costs.push(performance.now() - begin);
  };
  let last = await new Promise(requestAnimationFrame);
  const first = last;
  for (let frame = 0; frame < frames; frame++) {
    page.seek(page.model.end * (0.1 + (0.8 * frame) / frames));
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  const sorted = (list) => [...list].sort((one, other) => one - other);
  const at = (list, part) => sorted(list)[Math.floor((list.length - 1) * part)];
  const rate = (1000 * frames) / (last - first);
  return { rate, p95: at(times, 0.95), worst: at(times, 1), draw: at(costs, 0.95) };
}"""


def storm() -> Recording:
    recorder = Recorder()
    run(SCENARIOS["paxos"], 7, 5, make=recorder.simulation, caught=recorder.caught)
    return recorder.finished()


def ring() -> Recording:
    """Record a steady ring, in which some nodes crash."""
    recorder = Recorder()
    sim = recorder.simulation(1)
    nodes = [NodeId(f"n{number}") for number in range(RING)]
    steady = Steady.of(nodes)
    for node in nodes:
        sim.add(node, ring_builder(steady, []))
    for node in nodes[:: RING // CRASHES]:
        sim.call(sim.rng.uniform(0.0, RING_SECONDS), partial(sim.crash, node))
    sim.run(until=RING_SECONDS)
    return recorder.finished()


def measure(opened: Any, recording: Recording, path: Path, width: int) -> str:
    page = html(pack(recording), recording.title)
    path.write_text(page, encoding="utf-8")
    with tab(opened, "light", width) as shown:
        shown.page.goto(path.as_uri())
        shown.page.wait_for_selector('body[data-ready="true"]')
        found = shown.page.evaluate(SCRUB, FRAMES)
    return (
        f"{recording.title:<12} {width:>5} {len(recording.steps):>9,} {len(page) / 1e6:>6.1f} "
        f"{found['rate']:>9.1f} {found['p95']:>8.1f} {found['worst']:>8.1f} {found['draw']:>8.1f}"
    )


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("run          width     steps     MB  frames/s  p95 ms  worst ms  p95 draw ms")
    with TemporaryDirectory() as directory, browser() as opened:
        for title, recording in (("paxos", storm()), ("chord", ring())):
            recording.title = title
            for width in (1280, 390):
                path = Path(directory) / f"{title}.html"
                print(measure(opened, recording, path, width), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
