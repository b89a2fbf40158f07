"""Faults for a replica group: wiped disks, flipped bits, new members, leaders that hand over.

The storm keeps to a budget. Fewer than half of the disks have unrepaired losses at any time, and
no entry is ever damaged at a majority. Processes and links may also fail, but they always recover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Draw
from oncecast.lab.scenarios.paxos_checks import replica
from oncecast.lab.scenarios.paxos_history import GroupHistory
from oncecast.replication.events import Change, HandOver
from oncecast.replication.messages import CONFIG, Again, Entry, Learned
from oncecast.replication.status import Status
from oncecast.simulator.faults import Storm
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.weather import Front
from oncecast.storage import store
from oncecast.storage.journal import Journal
from oncecast.storage.segment import Segment, serials
from oncecast.storage.store import Block

LOOK_EVERY = 0.3
YEAR, HOUR = 365 * 86400.0, 3600.0
WRONG_STEPS = 5.0  # total time with wrong wall clocks, in steps of the decided time


class GroupStorm(Storm):
    # Long, because it is one table of faults. A fault that is listed twice is twice as likely.
    def __init__(
        self,
        sim: Simulation,
        nodes: Sequence[NodeId],
        history: GroupHistory,
        draw: Draw,
        *,
        away_max: int,
        wiped: dict[NodeId, None],
    ) -> None:
        super().__init__(sim, nodes, away_max=away_max, every=draw.every, lasting=draw.lasting)
        self.history, self.draw, self.wiped = history, draw, wiped
        self.size = history.configs[0][1].size
        self.hurt_max = (self.size - 1) // 2
        self.hurt: dict[NodeId, None] = {}  # nodes whose disk has lost data
        self.bitten: dict[int, dict[NodeId, None]] = {}  # by slot: the nodes on which it is damaged
        self._wrong_left = WRONG_STEPS * draw.habits.clock_step
        self._wrong = NodeId("")  # the node with the wrong wall clock
        self._kinds += (
            self._wipe,
            self._flip,
            self._flip,
            self._flip_in_change,
            self._flip_in_change,
            self._starve,
            self._cut_pair,
            self._tangle,
            self._conspire,
            self._conspire,
            self._black_out,
            self._add,
            self._remove,
            self._resize,
            self._hand_over,
            self._hand_over,
            self._cut_off_from_peers,
            self._cut_off_from_peers,
            self._strand,
            self._strand,
            self._set_wall_clock,
            self._set_wall_clock,
        )
        self.leave_out(1 - draw.faults)

    # -- disks --

    def _wipe(self, node: NodeId) -> bool:
        """Wipe a node's disk. The node returns with an empty disk and must be admitted again."""
        if not self._may_hurt(node):
            return False
        self.sim.crash(node)
        disk = self.sim.nodes[node].disk
        assert disk is not None
        disk.wipe()
        self.wiped[node] = None
        self.sim.note(node, "wipe")
        self.sim.call(self._some(self.lasting), lambda: self._restart(node))
        self._hurt(node, lambda: True)
        return True

    def wipe_one_more(self, within: float) -> bool:
        """Wipe a member's disk after the storm, as soon as all members are healthy.

        Return False if that takes longer than `within`.
        """
        limit = self.sim.now + within
        while self.sim.now < limit:
            if self._wipe(self.rng.choice(self._members())):
                return True
            self.sim.run(until=self.sim.now + LOOK_EVERY)
        return False

    def _flip(self, node: NodeId) -> bool:
        """Flip a bit in a node's log, restart the node, and sometimes isolate the leaders."""
        if not self._may_hurt(node):
            return False
        slots = self._flip_bit(node)
        if slots is None:
            return False
        self.sim.note(node, "flip", slots)
        bounced = self.sim.now + self.rng.choice((0.0, 0.0, self._some(self.lasting)))
        self.sim.call(bounced - self.sim.now, lambda: self._bounce(node))
        if self.rng.random() < 0.5:
            for leader in self.leaders():
                self._cut_off(leader)

        def readable() -> bool:
            paxos = replica(self.sim, node)
            # Until it restarts, the replica may have entries in memory that its disk has lost.
            return (
                self.sim.now > bounced
                and paxos is not None
                and not any(
                    slot >= paxos.log.kept and paxos.log.readable(slot) is None for slot in slots
                )
            )

        self._hurt(node, readable)
        return True

    def _flip_in_change(self, node: NodeId) -> bool:
        """Cut the links towards the leader, then damage a vote.

        Votes pile up, and the next leader asks for them again. The damaged vote has replaced an
        earlier vote.
        """
        paxos, leaders = replica(self.sim, node), self.leaders()
        if paxos is None or not leaders or not self._may_hurt(node):
            return False
        fronts: list[Front] = []
        for each in self.nodes:
            others = [other for other in self.nodes if other != each]
            if each not in leaders:
                fronts += self.sim.partition([each], others, one_way=True)
        self.sim.call(self._some(self.lasting), lambda: self.sim.repair(fronts))
        before = paxos.log.replaced
        self._flip_votes(node, lambda now: now.log.replaced > before, lambda: None, tries=250)
        return True

    def _flip_votes(
        self,
        node: NodeId,
        due: Callable[[Status], bool],
        then: Callable[[], None],
        tries: int,
    ) -> None:
        """Flip a bit as soon as `due` holds and the node has votes that may not be chosen."""
        paxos = replica(self.sim, node)
        ready = paxos is not None and len(paxos.log.votes) > 1 and due(paxos)
        if ready and not self._over and self._flip(node):
            then()
        elif tries:
            self.sim.call(0.01, lambda: self._flip_votes(node, due, then, tries - 1))

    def _flip_bit(self, node: NodeId) -> list[int] | None:
        """Flip a bit in a block that a later block proves to be synced. Return its slots."""
        state = self.sim.nodes[node]
        disk, journal = state.disk, state.journal
        if disk is None or journal is None:
            return None
        found: list[tuple[str, Block]] = []
        for serial in serials(disk):
            segment = Segment(disk, serial)
            blocks = [
                block
                for block in segment.walk()
                if isinstance(block, Block) and block.first + block.records - 1 <= journal.synced
            ]
            proven = max((block.synced for block in blocks), default=0)
            found += [
                (segment.name, block)
                for block in blocks
                if block.kind == store.RECORDS and block.first + block.records - 1 <= proven
            ]
            segment.close()
        if self.rng.random() < 0.7:
            found.reverse()  # try the newest blocks first
        else:
            self.rng.shuffle(found)
        if self.rng.random() < 0.5:
            found.sort(key=lambda each: not self._replaces(journal, each[1]))
        for name, block in found:
            if block.body is None or block.first == 1:
                continue  # the block is already damaged, or holds the identity of this replica
            records = [journal.read(block.first + at) for at in range(block.records)]
            slots = [each.slot for each in records if isinstance(each, Entry | Learned)]
            if any(len(self.bitten.get(slot, ())) >= self.hurt_max for slot in slots):
                continue
            for slot in slots:
                self.bitten.setdefault(slot, {})[node] = None
            disk.flip(name, self.rng.randrange(block.offset, block.end), self.rng.randrange(8))
            return slots
        return None

    def _replaces(self, journal: Journal, block: Block) -> bool:
        """Return whether the block may hold a vote that replaced another vote."""
        if block.body is None:
            return False
        records = [journal.read(block.first + at) for at in range(block.records)]
        votes = [each.slot for each in records if isinstance(each, Entry | Again)]
        return any(len(self.history.proposed.get(slot, ())) > 1 for slot in votes)

    def _bounce(self, node: NodeId) -> None:
        if self.sim.nodes[node].stack is not None and not self._over:
            self.sim.crash(node)
            self.sim.call(0.0, lambda: self._restart(node))

    def _starve(self, node: NodeId) -> bool:
        """Make a node miss many entries, fill its disk, and restart it."""
        disk = self.sim.nodes[node].disk
        if disk is None or not self._spare(node):
            return False
        fronts = self.sim.isolate(node)

        def back() -> None:
            self.sim.repair(fronts)
            disk.fill()
            self.sim.call(0.5, lambda: self._bounce(node))
            self.sim.call(0.6, lambda: self._restart(node))  # the node may have stopped on its own

        self.away[node] = back
        self.sim.call(2.0, lambda: self._return(back))
        return True

    def _hurt(self, node: NodeId, healed: Callable[[], bool]) -> None:
        """Count the disk as damaged until every member has all entries chosen so far."""
        last = self.history.last
        self.hurt[node] = None

        def look() -> None:
            if self._whole(last) and healed():
                del self.hurt[node]
            else:
                self.sim.call(LOOK_EVERY, look)

        self.sim.call(LOOK_EVERY, look)

    def _may_hurt(self, node: NodeId) -> bool:
        """Return whether this node's disk may lose records, including the node's identity."""
        allowed = node not in self.hurt and len(self.hurt) < self.hurt_max
        return allowed and self.sim.nodes[node].stack is not None and self._whole(0)

    def _whole(self, last: int) -> bool:
        """Return whether every member is up, knows its seat, and has slots up to `last` on disk.

        Return False if a membership change is pending.
        """
        slot, config = self.history.configs[-1]
        if len(config.members) < config.size or self._changing():
            return False
        for member in config.members:
            paxos = replica(self.sim, member.node)
            if (
                paxos is None
                or paxos.incarnation != member.incarnation
                or paxos.applied < max(last, slot)
            ):
                return False
            if last and (paxos.log.lost or paxos.log.storing):
                return False
        return True

    def _changing(self) -> bool:
        for node in self.nodes:
            paxos = replica(self.sim, node)
            if paxos is not None and (
                paxos.changes or (paxos.term is not None and paxos.term.changes_membership)
            ):
                return True
        proposed = self.history.proposed
        return any(
            item.kind == CONFIG
            for slot in range(self.history.last + 1, max(proposed, default=0) + 1)
            for item in proposed.get(slot, {}).values()
        )

    # -- the whole group, and links between nodes --

    def _victim(self) -> NodeId:
        """Return a random node. Leaders are chosen more often."""
        leaders = self.leaders()
        return self.rng.choice(leaders if leaders and self.rng.random() < 0.4 else self.nodes)

    def _black_out(self, node: NodeId) -> bool:
        for each in self.nodes:
            self._bounce(each)
        return True

    def _cut_pair(self, node: NodeId) -> bool:
        others = [each for each in self.nodes if each != node]
        if not others:
            return False
        other = self.rng.choice(others)
        fronts = self.sim.partition([node], [other], one_way=self.rng.random() < 0.5)
        self.sim.call(self._some(self.lasting), lambda: self.sim.repair(fronts))
        return True

    def _cut_off_from_peers(self, node: NodeId) -> bool:
        """Cut off a leader from its peers, but not from the clients that it serves."""
        node = next(iter(self.leaders()), node)
        others = [each for each in self.nodes if each != node]
        if not others or not self._front_away(node, lambda: self.sim.partition([node], others)):
            return False
        if self.rng.random() < 0.5:
            self._skew(node)  # a leader with a slow clock steps down as late as possible
        return True

    def _strand(self, node: NodeId) -> bool:
        """Cut off a leader with a minority of followers, whose votes choose nothing.

        Later one follower is reconnected, receives other values for the same slots, and restarts.
        """
        leader = next(iter(self.leaders()), None)
        followers = [each for each in self._members() if each != leader and self._spare(each)]
        if leader is None or not self._spare(leader) or len(self.away) + 1 > self.away_max:
            return False
        stranded = [leader, *self.rng.sample(followers, min(len(followers), self.away_max - 1))]
        stranded = stranded[: self.away_max - len(self.away)]
        others = [each for each in self.nodes if each not in stranded]
        fronts = self.sim.partition(stranded, others)
        back = stranded[-1]
        paxos = replica(self.sim, back)
        before = paxos.log.replaced if paxos is not None else 0

        def rejoin() -> None:
            self.sim.repair(fronts)
            self._bounce_when(back, lambda now: now.log.replaced > before, tries=500)

        for each in stranded:
            self.away[each] = rejoin
        wait = self.draw.suspicion * self.rng.uniform(1.5, 3.0)
        self.sim.call(wait, lambda: self._return(rejoin))
        return True

    def _bounce_when(self, node: NodeId, due: Callable[[Status], bool], tries: int) -> None:
        paxos = replica(self.sim, node)
        if paxos is not None and due(paxos):
            self._bounce(node)
        elif tries:
            self.sim.call(0.002, lambda: self._bounce_when(node, due, tries - 1))

    def _tangle(self, node: NodeId) -> bool:
        """Block a random set of links between nodes, each in one direction."""
        fronts: list[Front] = []
        for one in self.nodes:
            deaf = [other for other in self.nodes if other != one and self.rng.random() < 0.4]
            if deaf:
                fronts += self.sim.partition([one], deaf, one_way=True)
        self.sim.call(self._some(self.lasting), lambda: self.sim.repair(fronts))
        return True

    def _conspire(self, node: NodeId) -> bool:
        """Cut off some followers from the leader, and later all of them.

        Another follower restarts, possibly with a damaged log.
        """
        leaders = self.leaders()
        if not leaders:
            return False
        leader = leaders[0]
        others = [each for each in self._members() if each != leader]
        if len(others) < 2:
            return False
        deaf = self.rng.sample(others, min(self.away_max, len(others) - 1))
        between = self.rng.choice([each for each in others if each not in deaf])
        fronts = self.sim.partition([leader], deaf, one_way=self.rng.random() < 0.5)
        after = self.draw.suspicion * self.rng.uniform(1.0, 2.0)

        def betray() -> None:
            fronts.extend(self.sim.isolate(leader))

        def strike() -> None:
            if self._over:
                return
            if self.rng.random() < 0.5:
                self._flip_votes(between, lambda now: True, betray, tries=60)
            else:
                betray()
                self._bounce(between)

        if self.rng.random() < 0.5:
            self._skew(leader)
        self.sim.call(after, strike)
        self.sim.call(after + 0.5 + self._some(self.lasting), lambda: self.sim.repair(fronts))
        return True

    def _skew(self, node: NodeId) -> bool:
        """Skew all clocks up to the drift that the group tolerates. The clock of `node` is slow.

        Monotonic clocks do not jump.
        """
        drift = self.draw.drift
        slow, fast = 1 - drift, 1 + drift
        for each in self.nodes:
            extreme = slow if each == node else fast
            self.sim.skew(each, rate=self.rng.choice((extreme, self.rng.uniform(slow, fast))))
        return True

    def _set_wall_clock(self, node: NodeId) -> bool:
        """Set one wall clock wrong, too briefly for the group to accept its time."""
        if self._wrong or self._wrong_left <= 0:
            return False
        if self.rng.random() < 0.5:
            node = next(iter(self.leaders()), node)  # the group reads only the leader's clock
        self._wrong, step = node, self.draw.habits.clock_step
        few = self.rng.uniform(-10.0, 10.0) * step
        ahead = self.rng.choice((YEAR, -YEAR, HOUR, -HOUR, few))
        if ahead == few and len(self._members()) == 1:
            ahead = HOUR  # a lone node follows every jump of less than a step
        self.sim.set_wall_clock(node, ahead=ahead)
        lasting = min(self._wrong_left, self._some(self.lasting))
        self._wrong_left -= lasting
        self.sim.call(lasting, self._right_wall_clock)
        return True

    def _right_wall_clock(self) -> None:
        if self._wrong:
            self.sim.set_wall_clock(self._wrong, ahead=0.0)
            self._wrong = NodeId("")

    def calm(self) -> None:
        self._right_wall_clock()
        super().calm()

    # -- membership and leader --

    def leaders(self) -> list[NodeId]:
        """Return the running nodes that consider themselves the leader."""
        found = []
        for node in self.nodes:
            paxos = replica(self.sim, node)
            if paxos is not None and paxos.term is not None and paxos.term.acting:
                found.append(node)
        return [node for node in found if not self.sim.nodes[node].paused]

    def _change(self, change: Change) -> bool:
        """Request a membership change, unless the group is small or has just lost a disk."""
        if self.hurt or not self.hurt_max:
            return False
        return self._ask(change)

    def _ask(self, request: Value) -> bool:
        for node in self.leaders():
            self.sim.ask(node, request)
        return True

    def _members(self) -> list[NodeId]:
        return self.history.configs[-1][1].nodes()

    def _add(self, node: NodeId) -> bool:
        """Replace a member with a node that is not a member."""
        outsiders = [each for each in self.nodes if each not in self._members()]
        if not outsiders:
            return False
        replaced = self.rng.choice(self._members())
        return self._change(Change(add=self.rng.choice(outsiders), remove=replaced))

    def _remove(self, node: NodeId) -> bool:
        return self._change(Change(remove=self.rng.choice(self._members())))

    def _resize(self, node: NodeId) -> bool:
        size = self.history.configs[-1][1].size
        if len(self.nodes) == self.size:
            return False  # without a spare node, the group cannot grow
        return self._change(Change(size=self.size + (size == self.size)))

    def _hand_over(self, node: NodeId) -> bool:
        return self._ask(HandOver(self.rng.choice(self._members())))
