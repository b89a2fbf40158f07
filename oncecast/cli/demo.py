"""`oncecast demo`: five simulated nodes, a crash and a partition, told as a story."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from oncecast.cli import exits

if TYPE_CHECKING:
    from oncecast.kernel.protocol import NodeId, Value
    from oncecast.runtime.simulated import Simulation

SEED = 7


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser("demo", help="watch five simulated nodes survive trouble")
    demo.add_argument("--seed", type=int, default=SEED, help=f"of the run ({SEED})")
    demo.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return exits.OK if Story(args.seed).tell() else exits.FAILURE


class Story:
    def __init__(self, seed: int) -> None:
        from oncecast.kernel.protocol import NodeId
        from oncecast.runtime.simulated import Simulation
        from oncecast.runtime.trace import Trace
        from oncecast.scenarios.broadcast import Once, broadcaster

        self.seed = seed
        self.trace = Trace()
        self.sim: Simulation = Simulation(seed, trace=self.trace, listener=self._hear)
        self.checker = Once()
        self.sim.check(self.checker)
        self.nodes = [NodeId(name) for name in ("ada", "bob", "cleo", "dan", "eve")]
        self.delivered = dict.fromkeys(self.nodes, 0)
        self.published = 0
        for node in self.nodes:
            self.sim.add(node, broadcaster(self.nodes), durable=True)

    def tell(self) -> bool:
        ada, bob, cleo, dan, eve = self.nodes
        self._say("Five nodes start and find each other. Each has a disk of its own.")
        self._run(1.0)
        self._publish(ada, 3)
        self._run(1.0)
        self._say("ada published 3 messages; a broadcast tree carried them to everybody.")
        self._board()

        self.sim.crash(cleo)
        self._say("cleo crashes: its memory is gone, and what it had not synced.", "✗")
        self._publish(bob, 4)
        self._run(1.0)
        self._say("bob published 4 more. The tree has mended itself around cleo.")
        self._board()

        fronts = self.sim.partition([dan, eve], [ada, bob, cleo])
        self._say("A cable breaks: dan and eve are cut off from the others.", "✗")
        self._publish(ada, 2)
        self._publish(eve, 2)
        self._run(4.0)
        self._say("Both sides went on publishing: 2 messages by ada, 2 by eve.")
        self._board()

        self.sim.restart(cleo)
        self._say("cleo is back. It reads its log, then asks a neighbour what it missed.", "✓")
        self._run(4.0)
        self._board()

        self.sim.repair(fronts)
        self._say("The cable is mended. The two sides compare what they hold.", "✓")
        self._run(8.0)
        self._board()
        return self._close()

    def _hear(self, node: NodeId, event: Value) -> None:
        if type(event).__name__ == "Delivered":
            self.delivered[node] += 1

    def _publish(self, node: NodeId, count: int) -> None:
        from oncecast.overlay.events import Publish

        for _ in range(count):
            self.published += 1
            payload = b"message %d" % self.published
            self.checker.published[payload] = (node, self.sim.nodes[node].life)
            self.sim.ask(node, Publish(payload))

    def _run(self, seconds: float) -> None:
        self.sim.run(until=self.sim.now + seconds)

    def _say(self, text: str, sign: str = " ") -> None:
        print(f"{self.sim.now:5.1f} s {sign} {text}")

    def _board(self) -> None:
        """What each node has delivered, as a bar."""
        for node in self.nodes:
            count = self.delivered[node]
            down = "   (down)" if self.sim.nodes[node].stack is None else ""
            bar = paint("■" * count) + "·" * (self.published - count)
            print(f"            {node:<5} {bar} {count}/{self.published}{down}")
        print()

    def _close(self) -> bool:
        from oncecast.runtime.checkers import Violation

        try:
            self.sim.finish()
        except Violation as violation:
            print(f"A promise was broken: {violation}", file=sys.stderr)
            return False
        print(
            f"{self.published} messages at 5 nodes: each delivered once, none lost. "
            f"{self.trace.steps} steps, all checked.\n"
            f"The same seed gives the same run anywhere: trace {self.trace.hash[:12]}.\n\n"
            "Try next:\n"
            "  oncecast sim run broadcast --seeds 0..99     a storm of faults, a hundred times\n"
            "  oncecast sim replay broadcast --seed 3       one of them, step by step\n"
            "  oncecast sim bench                           how fast the simulator is here"
        )
        return True


def paint(text: str) -> str:
    return f"\x1b[32m{text}\x1b[0m" if sys.stdout.isatty() else text
