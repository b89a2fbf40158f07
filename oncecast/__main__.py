"""The entry point of `python -m oncecast` and of the `oncecast` command."""

from __future__ import annotations

import gc
import signal
import sys

# Number of new objects before the garbage collector runs. A short command ends before that.
# Otherwise it would spend a sixth of its time on garbage collection of its modules.
OBJECTS = 50_000


def run() -> None:
    gc.set_threshold(OBJECTS)
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # avoid a traceback while the command loads
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from oncecast.cli.main import main

    signal.signal(signal.SIGINT, interrupted)
    try:
        sys.exit(main())
    finally:
        gc.freeze()  # so that the interpreter does not collect garbage once more at exit


if __name__ == "__main__":
    run()
