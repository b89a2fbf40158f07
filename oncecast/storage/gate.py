"""Hold back messages and events until the records they depend on are on disk.

Both the network and the simulator send everything through a gate.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Emit, Send


class Gate:
    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: list[Send | Emit] = []

    def opens(self, output: Send | Emit, synced: int) -> bool:
        """Return whether record `output.after` is on disk. If not, hold back the output."""
        if output.after <= synced:
            return True
        self.held.append(output)
        return False

    def release(self, synced: int) -> list[Send | Emit]:
        """Remove and return the outputs that may now be sent, in order."""
        held = self.held
        free = [output for output in held if output.after <= synced]
        if len(free) == len(held):
            self.held = []
        elif free:
            self.held = [output for output in held if output.after > synced]
        return free
