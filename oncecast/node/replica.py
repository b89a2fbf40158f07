"""A replica of a group: its directory, stack, journal and log lines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from random import SystemRandom

import msgspec

from oncecast.broker.accounts import Budget
from oncecast.broker.events import ClockDisputed, ClockOutvoted
from oncecast.broker.governing import News, has_quorum, role_of
from oncecast.broker.guard import Checked
from oncecast.errors import Corrupt, Crippled, Outdated
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.incidents import line
from oncecast.network.listener import Listen
from oncecast.network.login import Logins
from oncecast.network.network import Runtime
from oncecast.network.options import Options
from oncecast.network.tls import Tls
from oncecast.node.assemble import VERSION, RingMembership, assemble
from oncecast.node.audit import Audit
from oncecast.node.config import Settings
from oncecast.node.derived import group_options_of
from oncecast.node.directory import Members, note, open_directory, recall, set_aside
from oncecast.node.health import Health
from oncecast.replication.events import Retire, Retired
from oncecast.ring.events import MoveWaits
from oncecast.security.access import Access
from oncecast.security.secret import ClusterSecret
from oncecast.storage.journal import Journal
from oncecast.wire.frames import (
    Call,
    Fetch,
    Govern,
    LeaveRing,
    Look,
    LookAccess,
    LookBroker,
    LookGroup,
    LookRing,
    Scan,
    Tune,
    Work,
)
from oncecast.wire.limits import LIMITS, Limits

logger = logging.getLogger("oncecast.node")

IDLE_MAX = 1e9  # seconds; a longer time means never
ASK_DISK_EVERY = 1.0  # seconds between attempts to allocate space on a full disk
HAND_OVER_SECONDS = 1.0  # seconds for which a stopping node waits for the next leader

# The messages that clients may send.
CLIENTS = (
    *(Call, Fetch, Work, Tune, Look, Scan),
    *(LookGroup, Govern, LookAccess, LookBroker, LookRing, LeaveRing),
)


class Replica:
    def __init__(
        self,
        settings: Settings,
        me: NodeId,
        path: str,
        joined: tuple[NodeId, ...],  # nodes to ask for membership, besides the saved nodes
        *,
        membership: RingMembership | None = None,  # None outside a ring
        audit: Audit,
        kafka: Callable[[], str],  # returns the address for Kafka clients, or ""
    ) -> None:
        """Open the directory and recover its state. `make_runtime` makes the replica runnable."""
        self.settings, self.me, self.path, self._joined = settings, me, path, joined
        self._membership, self._audit, self._kafka = membership, audit, kafka
        self._named = {"group": membership.group} if membership else {}  # fields of each log line
        self._noted: tuple[NodeId, ...] = ()  # the members saved in the directory
        # Whether the last log line reported a full disk, and when to try the allocation again.
        self._full, self._ask_disk_at = False, 0.0
        self.runtime: Runtime  # set by make_runtime
        self._retired: asyncio.Future[None] | None = None
        self._disk = open_directory(path)
        try:
            self.recover()
        except BaseException:
            self.close()
            raise

    # -- recovery --

    def recover(self) -> None:
        """Restore the replica. If its directory is damaged, rejoin the group."""
        known = recall(self.path)
        contacts = without(self._joined, self.me)
        if known is not None:
            self._noted = known.members
            # Leave out this node's old address, because it may have moved.
            contacts = without((*without(known.members, known.me), *self._joined), self.me)
        try:
            self._restore(contacts)
        except (Corrupt, Crippled) as damage:
            self.begin_anew(damage)
        except Outdated as error:
            raise error.within(self.path) from None

    def begin_anew(self, damage: Exception) -> None:
        """Rename the directory and rejoin the group. Without other members, raise `damage`."""
        known = recall(self.path)
        others = without(known.members, self.me, known.me) if known else self._joined
        if not others:
            raise damage
        self.close()
        aside, self._noted = set_aside(self.path), ()
        facts = {"data": self.path, "to": aside, "why": damage, "joins": ",".join(others)}
        logger.error(line("set_aside", {**self._named, **facts}))
        self._disk = open_directory(self.path)
        self._restore(without((*others, *self._joined), self.me))

    def _restore(self, contacts: tuple[NodeId, ...]) -> None:
        settings = self.settings
        if contacts and recall(self.path) is None:
            # Save the contacts first, because a node with --join must never start its own group.
            note(self.path, Members(self.me, contacts))
        self.parts = assemble(
            self.me,
            SystemRandom(),
            epoch_us=epoch_us(),
            wall=wall_us,
            free_disk_bytes=self._free_disk_bytes,
            limits=limits_of(settings),
            snapshot_bytes=settings.snapshot_bytes,
            window_bytes=settings.window_bytes,
            budget=Budget(
                calls=settings.client_calls_max,
                bytes=settings.client_bytes_max,
                rate=settings.client_rate,
            ),
            options=group_options_of(settings),
            contacts=contacts,
            membership=self._membership,
            principal_of=self._principal_of,
            kafka=self._kafka if settings.kafka else None,
        )
        self.parts.guard.report = self._report
        self.parts.guard.audits_open = self._audit.to_file
        self.group = self.parts.governor.group
        self.journal = Journal.open(self._disk, self.parts.stack)
        self._note_group()
        if self.group.log.damage:
            facts = {"data": self.path, "what": self.group.log.damage}
            logger.warning(line("damaged", {**self._named, **facts}))

    def _free_disk_bytes(self) -> int:
        """Return the allocated disk space that the log can still use, in bytes.

        If the disk was full, retry the allocation from time to time. While the node refuses puts,
        there may be no other write that would notice free space.
        """
        log, now = self.journal.log, time.monotonic()
        if log.full is not None and now >= self._ask_disk_at:
            self._ask_disk_at = now + ASK_DISK_EVERY
            log.prepare()
        if self._full != (log.full is not None):
            self._full = log.full is not None
            facts = {"data": self.path, "why": log.full} if self._full else {"data": self.path}
            event, level = (
                ("disk_full", logging.ERROR)
                if self._full
                else ("disk_space_available", logging.INFO)
            )
            logger.log(level, line(event, {**self._named, **facts}))
        return log.free_bytes

    @property
    def access(self) -> Access:
        """Return the users, tokens and rules that this replica knows."""
        return self.parts.service.machine.registry.access

    def _principal_of(self, client: NodeId) -> str:
        return self.runtime.principal_of(client)

    def _report(self, checked: Checked) -> None:
        self._audit.request(checked, self.runtime.address_of(checked.client))

    @property
    def alone(self) -> bool:
        """Return whether this replica is the only member of its group."""
        return self.group.nodes() == (self.me,)

    def _note_group(self) -> None:
        """Save the members, so that this node can rejoin them if its log is damaged."""
        nodes = self.group.nodes()
        if nodes and nodes != self._noted:
            note(self.path, Members(self.me, nodes))
            self._noted = nodes

    # -- start and stop --

    def make_runtime(
        self,
        *,
        listen: Listen | None = None,
        tls: Tls | None = None,
        secret: ClusterSecret | None = None,
        insecure: bool = False,
        logins: Logins | None = None,
        options: Options | None = None,
        primary: Runtime | None = None,
        tolerated: tuple[type[Exception], ...] = (),
    ) -> Runtime:
        """Return a runtime for this replica, with its own listener or the listener of `primary`."""
        self.runtime = Runtime(
            self.parts.stack,
            me=self.me,
            listen=listen,
            journal=self.journal,
            on_event=self._hear,
            tls=tls,
            secret=secret,
            insecure=insecure,
            logins=logins,
            clients=tuple(kind for kind in CLIENTS if kind in self.parts.stack.wiring.receiver),
            options=options,
            primary=primary,
            tolerated=tolerated,
        )
        return self.runtime

    async def hand_over(self) -> None:
        """Transfer leadership if this replica leads, and wait briefly for the next leader."""
        runtime = getattr(self, "runtime", None)
        if runtime is None or runtime.stopping:
            return
        began, leads = time.monotonic(), self.group.leader == self.me
        self._retired = asyncio.get_running_loop().create_future()
        runtime.request(Retire())
        await asyncio.wait((self._retired,), timeout=HAND_OVER_SECONDS)
        if leads and not self.alone:
            leader = self.group.leader if self.group.leader != self.me else ""
            facts = {"to": leader or "none", "seconds": round(time.monotonic() - began, 3)}
            level = logging.INFO if leader else logging.WARNING
            logger.log(level, line("handed_over", {**self._named, **facts}))

    def announce(self) -> None:
        registry = self.parts.service.machine.registry
        facts = {"node": self.me, "data": self.path, "version": VERSION}
        counts = {"topics": len(registry.topics), "records": self.journal.log.last}
        logger.info(line("recovered", {**self._named, **facts, **counts}))

    def close(self) -> None:
        self._disk.close()

    # -- events and health --

    def _hear(self, event: Value) -> None:
        if isinstance(event, Retired):
            if self._retired is not None and not self._retired.done():
                self._retired.set_result(None)
        elif isinstance(event, News) and event.level:
            self._tell_level(event)
        elif isinstance(event, News):
            self._note_group()
            facts = {"node": event.node or "none", "applied": self.group.applied}
            level = logging.WARNING if event.what == "suspected" else logging.INFO
            logger.log(level, line(event.what, {**self._named, **facts}))
            if event.what == "leader":
                self._compare_later()
        elif isinstance(event, MoveWaits):
            facts = {"from": event.exporter, "needs_level": event.needed, "level": event.level}
            remedy = "upgrade and start all nodes of this group"
            logger.warning(line("move_waits", {**self._named, **facts, "remedy": remedy}))
        elif isinstance(event, ClockDisputed | ClockOutvoted):
            what = "disputed" if isinstance(event, ClockDisputed) else "outvoted"
            self._tell_clock(f"clock_{what}", event.ahead_us)

    def _tell_level(self, news: News) -> None:
        if not news.node:
            logger.info(line(news.what, {**self._named, "level": news.level}))
            return
        facts = {"node": news.node, "knows_level": news.known, "group_level": news.level}
        remedy = f"upgrade oncecast on {news.node} to join the group"
        logger.error(line(news.what, {**self._named, **facts, "remedy": remedy}))

    def _tell_clock(self, what: str, ahead_us: int) -> None:
        if not ahead_us:
            logger.info(line("clock_agreed", {**self._named, "was": what}))
            return
        remedy = "check the nodes' clocks; nothing expires until they agree"
        facts = {"ahead_seconds": ahead_us // 1_000_000, "remedy": remedy}
        logger.warning(line(what, {**self._named, **facts}))

    def _compare_later(self) -> None:
        """Compare this node's batch limit with the leader's once the group has decided one."""
        asyncio.get_running_loop().call_later(self.settings.suspicion, self._compare_limits)

    def _compare_limits(self) -> None:
        group, ours = self.group, self.settings.batch_bytes_max
        if group.leader in ("", self.me) or self.runtime.stopping:
            return
        if not group.is_member or group.applied < group.log.known:
            self._compare_later()
            return
        theirs = self.parts.service.machine.registry.limits.batch_bytes_max
        if theirs != ours:
            remedy = (
                "use the same value on all nodes; otherwise this node cannot accept the leader's "
                "batches"
            )
            facts = {"setting": "batch_bytes_max", "here": ours, "leader": theirs}
            logger.error(line("differs", {**self._named, **facts, "remedy": remedy}))

    def health(self) -> Health:
        """Return the health of this replica. It is `ok` if a known leader accepts puts."""
        group = self.group
        quorum = has_quorum(group, asyncio.get_running_loop().time())
        status, reason = "ok", ""
        if self.parts.gateway.disk_is_full:
            full = self.journal.log.full or f"{self.path}: too little disk space is left"
            status, reason = "disk-full", str(full)
        elif not group.is_member:
            status, reason = "joining", "this node is not a member of the group yet"
        elif not group.leader:
            status, reason = "no-leader", "this node does not know the group's leader"
        elif not quorum:
            status, reason = "no-quorum", "too few members of the group are reachable"
        return Health(status, reason, role_of(group), group.leader, quorum)


def limits_of(settings: Settings) -> Limits:
    idle = idle_us(settings.producer_idle)
    return msgspec.structs.replace(
        LIMITS,
        batch_bytes_max=settings.batch_bytes_max,
        topics_max=settings.topics_max,
        subscriptions_total_max=settings.subscriptions_max,
        producers_total_max=settings.producers_max,
        producer_idle_us=idle,
        source_idle_us=idle,
    )


def idle_us(seconds: float) -> int:
    """Return the idle limit in microseconds. 0 means that records never expire."""
    return int(seconds * 1e6) if seconds < IDLE_MAX else 0


def wall_us() -> int:
    return time.time_ns() // 1000


def epoch_us() -> int:
    """Return the difference between the wall clock and the monotonic clock, in microseconds."""
    return wall_us() - int(time.monotonic() * 1e6)


def without(nodes: Iterable[NodeId], *others: NodeId) -> tuple[NodeId, ...]:
    """Return the nodes without duplicates and without `others`."""
    return tuple(node for node in dict.fromkeys(nodes) if node not in others)
