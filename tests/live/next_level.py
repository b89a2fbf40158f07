"""Runs the command of a program that knows one feature level more than this one.

The level is the only difference: so the test of an upgrade needs no other version of the program.
"""

from __future__ import annotations

import sys

from oncecast.wire import levels

if __name__ == "__main__":
    levels.KNOWN += 1
    from oncecast.cli.main import main  # it takes the level as a default argument

    sys.exit(main())
