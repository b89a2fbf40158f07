"""Find the Chromium that the tests of the console use, and install it if possible.

    python -m tools.browser

As root on Debian or Ubuntu, this installs the package `chromium` if no browser is found. Otherwise
it prints what is missing, and the tests of the console fail with the same text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

VARIABLE = "ONCECAST_CHROMIUM"  # path of another Chromium, Chrome or Edge
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
MISSING = (
    "the tests of the console need Chromium, and it is not installed; install the package "
    f"`chromium`, or set {VARIABLE} to the path of Chromium or Chrome"
)
INSTALL = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium")
PATIENCE = 600  # seconds for each command

Find = Callable[[str], str | None]


def find(which: Find = shutil.which) -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    if chosen := os.environ.get(VARIABLE):
        return which(chosen)
    return next(filter(None, map(which, (*NAMES, *PLACES))), None)


def can_install(which: Find = shutil.which) -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and which("apt-get") is not None


def install() -> None:
    """Install Debian's package. A failure is reported later, when no browser is found."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update", "--quiet"), INSTALL):
        subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )


def main() -> None:
    if find() is None and VARIABLE not in os.environ and can_install():
        print("installing Debian's package chromium for the tests of the console", flush=True)
        install()
    if find() is None:
        print(f"browser: {MISSING}", file=sys.stderr)


if __name__ == "__main__":
    main()
