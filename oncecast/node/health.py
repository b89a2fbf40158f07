"""The contents of /health and /live: stable JSON for load balancers and scripts.

`status` is one of the following. For all but `ok`, the HTTP status is 503 and `reason` explains it.

    ok           this node accepts puts, or knows the leader that does
    disk-full    the node has too little disk space, and refuses puts
    joining      the node is not a member of its group yet
    no-leader    the node does not know its group's leader
    no-quorum    too few members of the group are reachable
    draining     the process was told to stop
    failed       the process is stopping because of an error, such as a disk failure
"""

from __future__ import annotations

import json
from typing import NamedTuple

from oncecast.network.network import Runtime
from oncecast.node.assemble import VERSION
from oncecast.node.http import Page


class Health(NamedTuple):
    status: str
    reason: str
    role: str  # leader, replica or joining
    leader: str  # the leader, or empty if none is known
    quorum: bool


def ending(runtime: Runtime) -> dict[str, object]:
    """Return the `status` and `reason` of a process that is stopping, or {} if it is not."""
    if not runtime.draining:
        return {}
    error = runtime.failure
    if error is None:
        return {"status": "draining", "reason": "this node was told to stop"}
    return {"status": "failed", "reason": str(error) or type(error).__name__}


def page_of(status: int, node: str, facts: dict[str, object]) -> Page:
    known = {"status": facts["status"], "node": node, "version": VERSION, **facts}
    return Page(status, "application/json", json.dumps(known) + "\n")
