"""The local requests for queue elements, in order of arrival."""

from __future__ import annotations


class Waiting:
    def __init__(self) -> None:
        # By queue and ticket; True if the ticket waits.
        self._tickets: dict[str, dict[int, bool]] = {}

    def add(self, queue: str, ticket: int, patient: bool) -> None:
        self._tickets.setdefault(queue, {})[ticket] = patient

    def remove(self, queue: str, ticket: int) -> None:
        self._tickets.get(queue, {}).pop(ticket, None)

    def queues(self) -> list[str]:
        """Return the queues that have requests."""
        return [queue for queue, tickets in self._tickets.items() if tickets]

    def count(self, queue: str) -> int:
        return len(self._tickets.get(queue, ()))

    def first(self, queue: str) -> int:
        """Remove and return the oldest ticket."""
        ticket = next(iter(self._tickets[queue]))
        del self._tickets[queue][ticket]
        return ticket

    def impatient(self, queue: str) -> list[int]:
        """Remove and return the tickets that do not wait."""
        tickets = self._tickets.get(queue, {})
        found = [ticket for ticket, patient in tickets.items() if not patient]
        for ticket in found:
            del tickets[ticket]
        return found
