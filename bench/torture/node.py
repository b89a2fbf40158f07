"""Run `oncecast serve` on a disk that loses unsynced data: python -m bench.torture.node ..."""

from __future__ import annotations

import sys

from bench.torture.forgetful import ForgetfulDisk
from oncecast.cli.main import main
from oncecast.node import directory

if __name__ == "__main__":
    directory.OsDisk = ForgetfulDisk  # type: ignore[attr-defined]
    sys.exit(main(["serve", *sys.argv[1:]]))
