"""The entry point of `python -m oncecast` and of the `oncecast` command."""

from __future__ import annotations

import gc
import signal
import sys

# The number of new objects that triggers a garbage collection. Short commands create fewer. With
# the default threshold, they would spend a sixth of their time collecting garbage while modules
# load.
OBJECTS = 50_000


def run() -> None:
    gc.set_threshold(OBJECTS)
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # avoid a traceback while modules load
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from oncecast.cli.main import main

    signal.signal(signal.SIGINT, interrupted)
    try:
        sys.exit(main())
    finally:
        gc.freeze()  # so that the interpreter does not collect garbage at exit


if __name__ == "__main__":
    run()
