"""Check that move messages come from replicas of known groups.

The process's directory lists the replicas of each group. A node that is not in the directory cannot
take part in a move. Its last request waits until the process has reported its group. If the process
does not answer, the request is dropped, and the importer repeats it.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.ring.events import GroupFacts, WhereIs

GROUPS_MAX = 64  # maximum number of groups to remember
WAITING_MAX = 64  # maximum number of requests that wait for an answer from the process


class Neighbors:
    def __init__(self, io: Protocol, process: NodeId) -> None:
        self._io, self._process = io, process
        self._nodes: dict[str, tuple[NodeId, ...]] = {}  # by group
        self._waiting: dict[NodeId, Value] = {}  # the last request of each node
        self.refused = 0  # number of messages refused so far

    def knows(self, sender: NodeId, message: Value) -> bool:
        """Return whether the sender is a replica of a known group. If not, keep its message."""
        group = group_of(sender)
        if sender in self._nodes.get(group, ()):
            return True
        self.refused += 1
        if group and (sender in self._waiting or len(self._waiting) < WAITING_MAX):
            self._waiting[sender] = message
            self._io.send(self._process, WhereIs(group))
        return False

    def located(self, facts: GroupFacts) -> list[tuple[NodeId, Value]]:
        """Store the replicas of a group. Return the waiting messages from them."""
        self._nodes.pop(facts.group, None)
        self._nodes[facts.group] = facts.nodes
        if len(self._nodes) > GROUPS_MAX:
            del self._nodes[next(iter(self._nodes))]
        asked = [node for node in self._waiting if group_of(node) == facts.group]
        waited = [(node, self._waiting.pop(node)) for node in asked]
        return [each for each in waited if each[0] in facts.nodes]

    def forget(self) -> None:
        self._waiting.clear()


def group_of(node: NodeId) -> str:
    """Return a replica's group. Its node id is PROCESS/GROUP."""
    return node.partition("/")[2]
