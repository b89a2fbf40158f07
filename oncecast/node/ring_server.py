"""A process in a ring, with a ring stack and replicas of several groups.

At its first start, the process creates its own group. The ring stack decides which other groups the
process backs up, with the events Seat and Unseat. Each replica is a node `host:port/GROUP`. All of
them share one listener.

    DATA/ring.json        the identity of the process
    DATA/groups/GROUP/    the directory of a replica
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine
from functools import reduce
from random import SystemRandom

from oncecast.broker.events import Execute
from oncecast.broker.guard import Checked
from oncecast.broker.moves import ShareAccess
from oncecast.broker.service import NO_ASKER
from oncecast.broker.state import access_out
from oncecast.errors import Corrupt, Crippled, Diverged
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import is_name, process_of
from oncecast.network.incidents import line
from oncecast.network.network import Runtime
from oncecast.node.assemble import RingMembership
from oncecast.node.assemble_ring import RingParts, assemble_ring
from oncecast.node.config import Settings
from oncecast.node.derived import options_of, ring_options_of, warn_of_batches, warn_of_join
from oncecast.node.directory import (
    OURS_OF_RING,
    RingIdentity,
    group_path,
    groups_in,
    note_ring,
    open_directory,
    recall_ring,
    remove_group,
)
from oncecast.node.health import Health
from oncecast.node.http import Page
from oncecast.node.logins import AccessLogins
from oncecast.node.metrics import counters, page, replica_metrics, ring_metrics
from oncecast.node.process import Process
from oncecast.node.replica import CLIENTS, Replica, epoch_us, without
from oncecast.ring.events import Leave, Left, Seat, Unseat
from oncecast.security.access import OPEN, Access
from oncecast.storage.disk import OsDisk

logger = logging.getLogger("oncecast.node")

NO_GROUP = Health("joining", "this process does not run its own group", "joining", "", False)


class RingServer(Process):
    def __init__(self, settings: Settings) -> None:
        """Recover the replicas of all groups in the directory. `run` starts to accept clients."""
        super().__init__(settings)
        self.replicas: dict[str, Replica] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}  # the tasks that run the replicas
        # Groups whose replica is stopping, with the nodes to join if the replica must return.
        self._leaving: dict[str, tuple[NodeId, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk: OsDisk | None = None
        self._settled = False  # whether this process knows the rules of its ring
        try:
            self._disk = open_directory(settings.data, OURS_OF_RING)
            self.identity = self._find_identity()
            for group in dict.fromkeys((self.identity.group, *groups_in(settings.data))):
                self._open(group, ())
        except BaseException:
            self.close()
            raise
        self.parts = self._assemble()
        self.parts.roster.seated(tuple(self.replicas))
        self.runtime = Runtime(
            self.parts.stack,
            me=self.me,
            listen=self.listen,
            on_event=self._hear,
            tls=self.tls,
            secret=self.secret,
            insecure=settings.insecure,
            logins=AccessLogins(self.access, self.audit.login),
            clients=tuple(kind for kind in CLIENTS if kind in self.parts.stack.wiring.receiver),
            options=options_of(settings),
        )

    def _assemble(self) -> RingParts:
        return assemble_ring(
            self.me,
            SystemRandom(),
            group=self.identity.group,
            contacts=self._contacts(),
            returns=self._returns,
            epoch_us=epoch_us(),
            options=ring_options_of(self.settings),
            access=self.access,
            principal_of=self._principal_of,
            report=self._report,
            unsettled=self.unsettled,
            audits_open=self.audit.to_file,
        )

    def _report(self, checked: Checked) -> None:
        self.audit.request(checked, self.runtime.address_of(checked.client))

    # -- recovery --

    def _find_identity(self) -> RingIdentity:
        """Return the saved identity, or create and save a new one.

        If its group's directory is lost, other processes may still run that group. The process then
        creates a group with another name.
        """
        known, groups = recall_ring(self.settings.data), groups_in(self.settings.data)
        self._returns, self._was = known is not None, known.me if known is not None else self.me
        if known is not None and known.group in groups:
            identity = RingIdentity(self.me, known.group, known.first)
        else:
            first = not self.joined and not groups
            identity = RingIdentity(self.me, f"g-{secrets.token_hex(4)}", first)
        note_ring(self.settings.data, identity)
        return identity

    def _open(self, group: str, nodes: tuple[NodeId, ...]) -> Replica:
        first = self.identity.first and group == self.identity.group
        self.replicas[group] = Replica(
            self.settings,
            NodeId(f"{self.me}/{group}"),
            group_path(self.settings.data, group),
            nodes,
            membership=RingMembership(group, self.me, first),
            audit=self.audit,
            kafka=lambda: self.kafka_at,
        )
        return self.replicas[group]

    def _contacts(self) -> tuple[NodeId, ...]:
        """Return other processes of the ring: those in `join`, and members of the local groups.

        A process that is alone on its ring does not join another ring, because both rings own all
        topics.
        """
        known = [node for each in self.replicas.values() for node in each.group.nodes()]
        others = without(map(process_of, known), self.me, self._was)
        if self.joined and self._returns and self.identity.first and not others:
            warn_of_join(self.settings, "ring")
            return ()
        return without((*self.joined, *others), self.me)

    def leave(self) -> None:
        """Move the topics of this process's group to other groups, then stop."""
        self.runtime.request(Leave())

    # -- replicas --

    def announce(self) -> None:
        warn_of_batches(self.settings)

    def settle(self) -> None:
        for group in self.replicas:
            self._run(group)
        self._look_out()

    def _look_out(self) -> None:
        """Check regularly whether a second ring exists, and fail if it does.

        If the first process of a ring loses its disk and starts without `join`, it starts a second
        ring. When the two rings meet, two groups own each topic.
        """
        other = self.other_ring()
        if other:
            error = Diverged(
                f"process {self.me}: {other} is in another ring, which owns the same topics",
                f"move the directory {self.settings.data} aside and restart the process with "
                f"--join {other}",
            )
            self.runtime.fail(error)
        elif not self.runtime.stopping:
            self._share_access()
            asyncio.get_running_loop().call_later(self.settings.heartbeat, self._look_out)

    def _principal_of(self, client: NodeId) -> str:
        return self.runtime.principal_of(client)

    def access(self) -> Access:
        """Return the newest users, tokens and rules known to this process's replicas."""
        newest = OPEN
        for replica in self.replicas.values():
            if replica.access.version > newest.version:
                newest = replica.access
        return newest

    def unsettled(self) -> bool:
        """Return whether this process has joined a ring and does not know its rules yet.

        It receives the rules with its group's first topics, or when it backs up a group with
        topics.
        """
        self._settled = self._settled or self.identity.first or self._owns_arc()
        return not self._settled

    def _owns_arc(self) -> bool:
        return any(
            replica.group.is_member and replica.parts.service.machine.registry.owns_arc
            for replica in self.replicas.values()
        )

    def _share_access(self) -> None:
        """Pass the newest users, tokens and rules to the groups that this process leads.

        A change may not have reached all groups, and a new group starts without rules.
        """
        known = [replica.access for replica in self.replicas.values()]
        newest = reduce(Access.newer, known, OPEN)
        for group in self._keepers:
            replica = self.replicas[group]
            service = replica.parts.service
            if service.leading and replica.access.newer(newest) is not replica.access:
                rows = access_out(newest)
                replica.runtime.request(Execute(NO_ASKER, ShareAccess(rows)))

    def other_ring(self) -> str:
        """Return a process of another ring, or "" if none is known.

        Another ring certainly exists if this process's group owns all topics and has no other
        member, while another group also owns topics.
        """
        mine = self.replicas.get(self.identity.group)
        holdings = mine.parts.service.machine.registry.holdings if mine and mine.alone else None
        if holdings is None or holdings.low != holdings.position or holdings.frozen is not None:
            return ""
        known = self.parts.roster.groups.values()
        owners = [each for each in known if each.low and each.group != holdings.group]
        others = without((process_of(node) for each in owners for node in each.nodes), self.me)
        return next(iter(others), "")

    def _hear(self, event: Value) -> None:
        match event:
            case Seat(group, nodes):
                self._seat(group, nodes)
            case Unseat(group, gone) if group in self.replicas and group not in self._leaving:
                self._leaving[group] = ()
                self._start(self._unseat(group, gone))
            case Left():
                logger.info(line("left", {"node": self.me}))
                self.runtime.ask_to_stop()
            case _:
                pass  # an event between protocols

    def _seat(self, group: str, nodes: tuple[NodeId, ...]) -> None:
        others = without(nodes, NodeId(f"{self.me}/{group}"))
        facts = {"group": group, "nodes": ",".join(nodes)}
        if self.runtime.stopping:
            return
        if not is_name(group) or not others:
            # A replica without other members would create a second group with this name.
            logger.warning(line("not_seated", {**facts, "why": "no other member is known"}))
        elif group in self._leaving:
            self._leaving[group] = others
        elif group not in self.replicas:
            logger.info(line("seated", facts))
            self._open(group, others)
            self._run(group)

    async def _unseat(self, group: str, gone: bool) -> None:
        """Stop a replica. Delete its directory if the group is gone.

        Otherwise the group may need this replica again.
        """
        self._keepers[group].cancel()
        await asyncio.wait([self._keepers[group]])
        self.replicas.pop(group).close()
        del self._keepers[group]
        if gone:
            remove_group(self.settings.data, group)
        logger.info(line("unseated", {"group": group, "gone": gone}))
        nodes = self._leaving.pop(group)
        if nodes:
            self._seat(group, nodes)

    # -- start and stop --

    def _run(self, group: str) -> None:
        self._keepers[group] = self._start(self._keep(self.replicas[group]))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.runtime.fail(error)

    async def _keep(self, replica: Replica) -> None:
        """Run a replica until it is cancelled or the process stops. Restart it after damage."""
        while not self.runtime.stopping:
            runtime = replica.make_runtime(
                primary=self.runtime, tolerated=(Diverged, Corrupt, Crippled)
            )
            replica.announce()
            try:
                await runtime.run()
            except Diverged as error:
                replica.begin_anew(error)
            except (Corrupt, Crippled) as error:
                logger.error(line("damaged", {"data": replica.path, "what": error}))
                await asyncio.sleep(self.settings.suspicion)
                replica.recover()

    async def hand_over(self) -> None:
        running = [self.replicas[group] for group in self._keepers]
        await asyncio.gather(*(replica.hand_over() for replica in running))

    async def calm_down(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        super().close()
        for replica in self.replicas.values():
            replica.close()
        if self._disk is not None:
            self._disk.close()

    # -- metrics and health --

    def metrics(self) -> Page:
        found = [*counters(self.runtime.stats), *ring_metrics(self.parts)]
        for group, replica in self.replicas.items():
            found += replica_metrics(replica, group)
        return page(found)

    def facts(self) -> dict[str, object]:
        """Return the health of all groups. The status is `disk-full`, or that of its own group."""
        groups = {group: replica.health() for group, replica in self.replicas.items()}
        own = groups.get(self.identity.group, NO_GROUP)
        worst = next((each for each in groups.values() if each.status == "disk-full"), own)
        healths = {group: each._asdict() for group, each in groups.items()}
        return {**worst._asdict(), "group": self.identity.group, "groups": healths}
