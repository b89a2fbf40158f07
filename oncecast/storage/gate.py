"""Saved before sent: what depends on a record that is not on disk yet is held back.

Both drivers, the network's and the simulator's, let everything out through a gate.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Emit, Send


class Gate:
    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: list[Send | Emit] = []

    def opens(self, output: Send | Emit, synced: int) -> bool:
        """Whether it may leave now that the records up to `synced` are on disk; else it is held."""
        if output.after <= synced:
            return True
        self.held.append(output)
        return False

    def release(self, synced: int) -> list[Send | Emit]:
        """What was held and may leave now, in the order in which it came."""
        held = self.held
        free = [output for output in held if output.after <= synced]
        if len(free) == len(held):
            self.held = []
        elif free:
            self.held = [output for output in held if output.after > synced]
        return free
