"""What follows from the settings of a node: options of its network and its group, TLS, its door."""

from __future__ import annotations

import logging
import socket

from oncecast.errors import CannotListen, NotAllowed
from oncecast.kernel.protocol import NodeId
from oncecast.network.addresses import is_loopback, split_process
from oncecast.network.incidents import line
from oncecast.network.options import Options
from oncecast.network.tls import Tls
from oncecast.node.assemble_ring import RingOptions
from oncecast.node.config import Settings
from oncecast.replication.options import GroupOptions

logger = logging.getLogger("oncecast.node")

FRAME_SLACK = 1024 * 1024  # what a message has beside the values that it carries
SLOWEST = 32 * 1024 * 1024  # bytes a second that links and disks of a group should do


def options_of(settings: Settings) -> Options:
    group = group_options_of(settings)
    # A promise may hold all that a leader had under way, and the last batch of that be a large one.
    frame = settings.batch_bytes_max + group.window_bytes + group.accept_bytes + FRAME_SLACK
    # What flows have under way, of which the last batch may be beyond their window, and as much
    # again for answers and for what is asked for twice.
    queue = 2 * (settings.window_bytes + settings.batch_bytes_max)
    return Options(
        cluster=settings.cluster,
        batch_bytes_max=settings.batch_bytes_max,
        connections_max=settings.connections_max,
        unsynced_bytes_max=settings.unsynced_bytes_max,
        drain_timeout=settings.drain_timeout,
        frame_bytes_max=frame,
        queue_bytes_max=max(queue, 2 * frame),
    )


def group_options_of(settings: Settings) -> GroupOptions:
    return GroupOptions(
        size=settings.replicas,
        heartbeat=settings.heartbeat,
        suspicion=settings.suspicion,
        resend=min(0.25, max(0.05, settings.suspicion / 8)),
        replace_after=settings.replace_after,
        compare_every=settings.compare_every,
    )


def ring_options_of(settings: Settings) -> RingOptions:
    beat = settings.heartbeat
    return RingOptions(
        replicas=settings.replicas,
        stabilize_every=beat,
        answer_within=beat / 2,
        shuffle_every=10 * beat,
        gossip_every=beat,
        gone_after=5 * settings.suspicion,
    )


def warn_of_batches(settings: Settings) -> None:
    """A heartbeat waits behind the batch that is on its way."""
    if settings.batch_bytes_max > SLOWEST * settings.suspicion:
        remedy = "a batch on its way may cost an election: lower the one, or raise the other"
        facts = {"batch_bytes_max": settings.batch_bytes_max, "suspicion": settings.suspicion}
        logger.warning(line("long_batches", {**facts, "remedy": remedy}))


def tls_of(settings: Settings) -> Tls | None:
    if not settings.tls_certificate:
        return None
    return Tls.from_files(
        certificate=settings.tls_certificate, key=settings.tls_key, ca=settings.tls_ca
    )


def check_exposure(settings: Settings) -> None:
    """Not open to the world, unless somebody said that they should be."""
    guarded = settings.insecure or bool(settings.tls_certificate)
    for address in filter(None, (settings.listen, settings.http)):
        host, _ = split_process(address)
        if not guarded and not is_loopback(host):
            raise NotAllowed(
                f"{address} can be reached from other machines and TLS is off",
                "give this node a certificate (tls_certificate, tls_key, tls_ca), listen on "
                "127.0.0.1, or set insecure",
            )


def warn_of_join(settings: Settings, kind: str) -> None:
    """It has been told to join others, and cannot, because of what its directory holds."""
    why = f"the directory holds a {kind} of its own, with nobody else in it"
    remedy = "to join them, give an empty directory; to have them join this one, tell them so"
    facts = {"join": settings.join, "data": settings.data, "why": why, "remedy": remedy}
    logger.warning(line("join_ignored", facts))


def listen_address(settings: Settings) -> tuple[str | socket.socket, NodeId]:
    """Where to listen, and the address that a node has by it, unless it is told another."""
    listen, advertise = settings.listen, settings.advertise
    if advertise:
        split_process(advertise)
    host, port = split_process(listen)
    if port:
        return listen, NodeId(advertise or listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, 0), family=family)
    except OSError as error:
        raise CannotListen(f"{listen}: {error.strerror or error}", "listen elsewhere") from error
    return sock, NodeId(advertise or f"{listen.rsplit(':', 1)[0]}:{sock.getsockname()[1]}")
