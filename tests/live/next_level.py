"""Run the command line as a program that knows one more feature level.

The level is the only difference, so the upgrade test needs no other version of the program.
"""

from __future__ import annotations

import sys

from oncecast.wire import levels

if __name__ == "__main__":
    levels.KNOWN += 1
    from oncecast.cli.main import (
        main,
    )  # imported after the level is set, because default arguments use it

    sys.exit(main())
