"""`python -m oncecast` and the `oncecast` command, in a process of their own."""

from __future__ import annotations

import gc
import signal
import sys

# New objects until the garbage collector runs. A short command ends before: it would spend a
# sixth of its time on a search through its modules.
OBJECTS = 50_000


def run() -> None:
    gc.set_threshold(OBJECTS)
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # no traceback while the command loads
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from oncecast.cli.main import main

    signal.signal(signal.SIGINT, interrupted)
    try:
        sys.exit(main())
    finally:
        gc.freeze()  # or the interpreter would search once more before it ends


if __name__ == "__main__":
    run()
