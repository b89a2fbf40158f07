"""Records the operations of clients, and checks that their history is linearizable.

    operation   one operation of one client, with the times of its call and return
    recorder    records operations in memory or to a file: `Recorder(clock)`
        session     records everything that a client session does: `SessionHistory(...)`
    file        histories as JSON lines, one file for each process: `Writer`, `read`, `merged`
    check       `check(history)` returns a `Verdict`

A simulated run needs one line: `sim.check(Histories())`, from `oncecast.lab.scenarios.histories`.
It records every client session in the simulation and checks the history at the end. If operations
contradict each other, the check raises a Violation that lists them. `oncecast.lab.recording`
records a live client.
"""

from oncecast.history.check import Verdict, check
from oncecast.history.finding import Finding
from oncecast.history.operation import History, Operation
from oncecast.history.recorder import Recorder

__all__ = ["Finding", "History", "Operation", "Recorder", "Verdict", "check"]
