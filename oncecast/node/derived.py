"""Values derived from a node's settings: options, TLS, and the address to listen on."""

from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path

from oncecast.errors import BadSetting, CannotListen, NotAllowed, Refused
from oncecast.kernel.protocol import NodeId
from oncecast.network.addresses import is_loopback, split_process
from oncecast.network.incidents import line
from oncecast.network.options import Options
from oncecast.network.tls import Tls
from oncecast.node.assemble_ring import RingOptions
from oncecast.node.config import Settings
from oncecast.replication.options import GroupOptions
from oncecast.security.certificates import check_node
from oncecast.security.secret import SECRET_BYTES_MIN, ClusterSecret

logger = logging.getLogger("oncecast.node")

FRAME_SLACK = 1024 * 1024  # maximum overhead of a message, in bytes
SLOWEST = 32 * 1024 * 1024  # minimum throughput expected of links and disks, in bytes per second
ROOT = 0  # user id of the administrator


def options_of(settings: Settings) -> Options:
    group = group_options_of(settings)
    # A promise may contain all batches that a leader had in flight, and one more large batch.
    frame = settings.batch_bytes_max + group.window_bytes + group.accept_bytes + FRAME_SLACK
    # The last batch in flight to a client may exceed its window. The factor of two leaves space
    # for answers and repeated requests.
    queue = 2 * (settings.window_bytes + settings.batch_bytes_max)
    return Options(
        cluster=settings.cluster,
        batch_bytes_max=settings.batch_bytes_max,
        connections_max=settings.connections_max,
        user_connections_max=settings.user_connections_max,
        host_connections_max=settings.host_connections_max,
        peers_max=settings.peers_max,
        unsynced_bytes_max=settings.unsynced_bytes_max,
        busy_poll=settings.busy_poll,
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
    """Log a warning if a batch could delay a heartbeat for longer than `suspicion`."""
    if settings.batch_bytes_max > SLOWEST * settings.suspicion:
        remedy = (
            "lower batch_bytes_max or raise suspicion; otherwise a large batch may delay "
            "heartbeats and trigger an election"
        )
        facts = {"batch_bytes_max": settings.batch_bytes_max, "suspicion": settings.suspicion}
        logger.warning(line("long_batches", {**facts, "remedy": remedy}))


def tls_of(settings: Settings) -> Tls | None:
    if not settings.tls_certificate:
        return None
    return Tls.from_files(
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        ca=settings.tls_ca or None,
        crl=settings.tls_crl or None,
        client_certificates=settings.tls_clients == "required",
    )


def secret_of(path: str | os.PathLike[str]) -> ClusterSecret | None:
    """Return the cluster secret in a file, or None if `path` is empty.

    Raise BadSetting if the secret is too short or if other users can access the file.
    """
    if not path:
        return None
    try:
        info, secret = Path(path).stat(), Path(path).read_bytes().strip()
    except OSError as error:
        raise BadSetting(
            f"cluster_secret_file: {path}: {error.strerror or error}", "use a readable file"
        ) from None
    if shared(info.st_mode, info.st_uid, os.geteuid()):
        mode = stat.S_IMODE(info.st_mode)
        raise BadSetting(
            f"cluster_secret_file: other users can access {path} (mode {mode:04o})",
            f"run chmod 600 {path}",
        )
    if len(secret) < SECRET_BYTES_MIN:
        raise BadSetting(
            f"cluster_secret_file: the secret in {path} is {len(secret)} bytes long (minimum "
            f"{SECRET_BYTES_MIN})",
            f"generate a longer one: openssl rand -base64 32 > {path}",
        )
    return ClusterSecret(secret)


def shared(mode: int, owner: int, user: int) -> bool:
    """Return whether users other than `user` and root can access a file.

    The group of a file that root owns may read it: this is how Kubernetes provides a secret to a
    process that does not run as root.
    """
    allowed = stat.S_IRGRP if owner == ROOT != user else 0
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO) & ~allowed)


def warn_of_certificate(tls: Tls | None, me: NodeId) -> None:
    """Log a warning if other nodes would reject this node's certificate."""
    if tls is None or not tls.identifies or tls.own is None:
        return
    try:
        check_node(tls.own, split_process(me)[0], me)
    except Refused as refused:
        logger.warning(line("not_a_node_certificate", {"why": refused}))


def check_exposure(settings: Settings) -> None:
    """Raise NotAllowed if other machines can reach this node without TLS or `insecure`."""
    guarded = settings.insecure or bool(settings.tls_certificate)
    host, _ = split_process(settings.listen)
    if not guarded and not is_loopback(host):
        raise NotAllowed(
            f"{settings.listen} is reachable from other machines, but TLS is off",
            "give this node a certificate (tls_certificate, tls_key, tls_ca), listen on "
            "127.0.0.1, or set insecure",
        )


def warn_of_join(settings: Settings, kind: str) -> None:
    """Log a warning that `join` is ignored, because this node has its own group or ring."""
    why = f"this node is the only member of the {kind} in its directory"
    remedy = "to join the other nodes, use an empty directory; or let them join this node"
    facts = {"join": settings.join, "data": settings.data, "why": why, "remedy": remedy}
    logger.warning(line("join_ignored", facts))


def listen_address(settings: Settings) -> tuple[str | socket.socket, NodeId]:
    """Return the address or socket to listen on, and the address that other nodes use.

    With port 0, open a socket on a free port. Raise CannotListen if that fails.
    """
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
        cause = error.strerror or error
        raise CannotListen(f"cannot listen on {listen}: {cause}", "use another address") from error
    return sock, NodeId(advertise or f"{listen.rsplit(':', 1)[0]}:{sock.getsockname()[1]}")
