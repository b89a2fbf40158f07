"""Run `oncecast serve` and record its messages to other nodes: python -m ... FILE serve ..."""

from __future__ import annotations

import os
import sys
from typing import Any

from bench.hostile.corpus import Recorder
from oncecast.cli.main import main
from oncecast.network.links import Link

if __name__ == "__main__":
    file, *words = sys.argv[1:]
    recorder = Recorder(f"{file}.{os.getpid()}")
    send = Link.send

    def recording(self: Any, message: bytes) -> None:
        recorder.note(message)
        send(self, message)

    Link.send = recording  # type: ignore[method-assign]
    sys.exit(main(words))
