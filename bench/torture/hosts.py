"""Create hosts on one machine: network namespaces, connected by a router that can drop packets.

Each host has one address and reaches its peers through the router only. A cut drops packets
without telling the sender, as a broken switch does. Existing connections stay open but silent.
Creating namespaces needs root and `ip` (Debian: iproute2).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable

NETWORK = "10.201"


class HostsUnavailable(Exception):
    """Network namespaces cannot be created on this machine."""


class Hosts:
    """A set of hosts. Use it in a `with` statement, which removes the namespaces at the end."""

    def __init__(self, names: Iterable[str]) -> None:
        if shutil.which("ip") is None:
            raise HostsUnavailable("the `ip` command is missing; install iproute2")
        self._names = list(names)
        self._prefix = f"oncecast-{os.getpid()}"
        self._made: list[str] = []
        self._cuts: dict[tuple[str, str], int] = {}  # one-way link -> number of overlapping cuts
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.close()
            why = error.stderr.decode(errors="replace").strip()
            raise HostsUnavailable(f"{' '.join(error.cmd)}: {why}; run it as root") from None

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for space in self._made:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        self._made.clear()

    def address(self, host: str) -> str:
        return f"{NETWORK}.{self._names.index(host) + 1}.2"

    def on(self, host: str, command: list[str]) -> list[str]:
        """Return the command line that runs `command` on this host; it keeps the process id."""
        return ["ip", "netns", "exec", self._space(host), *command]

    # -- cuts --

    def cut(self, sender: str, receiver: str) -> None:
        """Drop packets from one host to another, in this direction only."""
        way = sender, receiver
        if not self._cuts.get(way):
            self._rule("add", way)
        self._cuts[way] = self._cuts.get(way, 0) + 1

    def mend(self, sender: str, receiver: str) -> None:
        """Remove one cut. Packets pass again once the last cut in this direction is removed."""
        way = sender, receiver
        self._cuts[way] -= 1
        if not self._cuts[way]:
            self._rule("del", way)

    def _rule(self, verb: str, way: tuple[str, str]) -> None:
        sender, receiver = map(self.address, way)
        words = ["rule", verb, "from", sender, "to", receiver, "blackhole"]
        ip("-n", self._space("router"), *words)

    # -- creating the namespaces --

    def _space(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _make(self) -> None:
        for host in ["router", *self._names]:
            space = self._space(host)
            ip("netns", "add", space)
            self._made.append(space)
            ip("-n", space, "link", "set", "lo", "up")
        router = self._space("router")
        for number, host in enumerate(self._names, 1):
            space, link = self._space(host), f"link{number}"
            pair = ["type", "veth", "peer", "name", link, "netns", router]
            ip("link", "add", link, "netns", space, *pair)
            for where, last in ((space, 2), (router, 1)):
                ip("-n", where, "addr", "add", f"{NETWORK}.{number}.{last}/24", "dev", link)
                ip("-n", where, "link", "set", link, "up")
            ip("-n", space, "route", "add", "default", "via", f"{NETWORK}.{number}.1")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        ip("netns", "exec", router, "sh", "-c", forward)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
