"""Accepted sockets whose handshakes are not finished.

Until its handshake is finished, a connection costs a socket and a little memory for a few seconds.
If there are too many, the host with the most pending handshakes loses its oldest one. A host that
opens many connections therefore harms only itself, and a genuine dialler finishes within a few
round trips.
"""

from __future__ import annotations

import asyncio
import socket


class Handshake:
    def __init__(self, sock: socket.socket, host: str, port: int) -> None:
        self.sock, self.host, self.port = sock, host, port
        self.started = False  # whether the task has started, and so will close the socket
        self.done = False
        self.task: asyncio.Task[None]

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    def cancel(self) -> None:
        self.task.cancel()
        if not self.started:
            self.sock.close()


class Pending:
    def __init__(self) -> None:
        self._hosts: dict[str, dict[Handshake, None]] = {}  # oldest first for each host
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, handshake: Handshake) -> None:
        self._hosts.setdefault(handshake.host, {})[handshake] = None
        self._count += 1

    def remove(self, handshake: Handshake) -> None:
        """Remove a handshake, if it is still pending."""
        of_host = self._hosts.get(handshake.host, {})
        if handshake in of_host:
            del of_host[handshake]
            self._count -= 1
            if not of_host:
                del self._hosts[handshake.host]

    def cancel_one(self) -> None:
        """Cancel the oldest handshake of the host with the most handshakes."""
        most = max(self._hosts.values(), key=len)
        self._cancel(next(iter(most)))

    def cancel_all(self) -> list[asyncio.Task[None]]:
        """Cancel all handshakes and return their tasks."""
        handshakes = [each for of_host in self._hosts.values() for each in of_host]
        for each in handshakes:
            self._cancel(each)
        return [each.task for each in handshakes]

    def _cancel(self, handshake: Handshake) -> None:
        self.remove(handshake)
        handshake.cancel()
