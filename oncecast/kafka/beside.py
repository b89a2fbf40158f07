"""The front end in the process of a node: `oncecast serve --kafka`, or beside an embedded node.

It connects to the node as any other client does. So a request of a Kafka client takes the same path
as in a process of its own, and gets the same guarantees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from oncecast.client.client import Client
from oncecast.client.options import ClientOptions
from oncecast.errors import NotAllowed, OncecastError
from oncecast.kafka.desk import Address
from oncecast.kafka.listener import Listener
from oncecast.kafka.sasl import PLAIN, SCRAM
from oncecast.network.addresses import is_loopback, split, split_process
from oncecast.network.incidents import line
from oncecast.network.tls import Tls
from oncecast.node.config import Settings, is_wildcard
from oncecast.node.process import Process

logger = logging.getLogger("oncecast.node")


class KafkaCompanion:
    """Serves Kafka clients as long as the process of a node runs."""

    def __init__(self, process: Process) -> None:
        """Check the settings. `start` opens the listener."""
        self._process, self._settings = process, process.settings
        self._host, self._port = split_process(self._settings.kafka)
        check_exposure(self._settings, self._host)
        self._listener: Listener | None = None
        self._tls = listener_tls(self._settings)

    @property
    def address(self) -> str:
        """Return the address that Kafka clients connect to, or "" if the listener is closed."""
        if self._listener is None:
            return ""
        if self._advertised is None:
            return self._listener.address
        host, port = self._advertised
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def _advertised(self) -> Address | None:
        """Return the address for clients, or None if it is the address to listen on.

        If the front end listens on all addresses, clients use the host of the node's address.
        """
        settings = self._settings
        if settings.kafka_advertise:
            return split(settings.kafka_advertise)
        if is_wildcard(settings.kafka) and self._port:
            return split(self._process.me)[0], self._port
        return None

    async def start(self) -> None:
        """Open the listener. Raise CannotListen if the address is in use."""
        settings = self._settings
        listener = Listener(
            self._options(),
            self._host,
            self._port,
            advertised=self._advertised,
            auto_create=not settings.kafka_no_auto_create,
            connections_max=settings.kafka_connections_max,
            tls=self._tls,
            mechanisms=mechanisms_of(self._host, sasl=settings.kafka_sasl, tls=bool(self._tls)),
            process=str(self._process.me),
            log=lambda text: logger.info(line("kafka_client", {"what": text})),
        )
        self._listener = await listener.__aenter__()
        self._process.kafka_at = self.address
        listener.ended.add_done_callback(tell)
        logger.info(line("kafka", {"at": listener.address}))

    async def stop(self) -> None:
        """Close the listener and all connections of Kafka clients."""
        listener, self._listener, self._process.kafka_at = self._listener, None, ""
        if listener is not None:
            listener.ended.cancel()
            await listener.__aexit__()

    def _options(self) -> ClientOptions:
        """Return how the front end connects to the node.

        With `kafka_sasl`, it connects as a node, which may act for users. Otherwise it is an
        anonymous client, so a Kafka client gets no more permissions than that.
        """
        process, settings = self._process, self._settings
        options = ClientOptions(address=process.me, cluster=settings.cluster, tls=process.tls)
        if settings.kafka_sasl:
            return msgspec.structs.replace(options, secret=process.secret, node=str(process.me))
        if process.tls is None:
            return options
        return msgspec.structs.replace(options, tls=Tls.from_files(ca=settings.tls_ca or None))


def check_exposure(settings: Settings, host: str) -> None:
    """Raise NotAllowed if other machines can reach the address without TLS or without a login."""
    missing = [] if settings.kafka_sasl else ["Kafka clients do not log in"]
    missing += [] if settings.tls_certificate else ["TLS is off"]
    if missing and not is_loopback(host) and not settings.insecure:
        raise NotAllowed(
            f"kafka: other machines can reach {settings.kafka}, but " + " and ".join(missing),
            "set kafka_sasl, tls_certificate and tls_key, listen on 127.0.0.1, or set insecure",
        )


def mechanisms_of(host: str, *, sasl: bool, tls: bool) -> tuple[str, ...]:
    """Return how Kafka clients may log in. PLAIN sends the password to this process."""
    if not sasl:
        return ()
    return (SCRAM, PLAIN) if tls or is_loopback(host) else (SCRAM,)


def listener_tls(settings: Settings) -> Tls | None:
    """Return the node's certificate for Kafka clients, which need no certificate themselves."""
    if not settings.tls_certificate:
        return None
    return Tls.from_files(certificate=settings.tls_certificate, key=settings.tls_key)


def tell(ended: asyncio.Future[OncecastError]) -> None:
    """Log why the front end can no longer reach its node, unless the node stops."""
    if ended.cancelled():
        return
    remedy = "if this cluster has users, set kafka_sasl; then restart the node"
    logger.error(line("kafka_ended", {"why": ended.result(), "remedy": remedy}))


@asynccontextmanager
async def serve_kafka(
    client: Client, listen: str = "127.0.0.1:0", *, auto_create: bool = True
) -> AsyncIterator[str]:
    """Serve Kafka clients beside an open client, and yield the bootstrap address.

    The front end connects to the client's nodes, and logs in as the client does. With port 0, the
    system chooses a port.
    """
    host, port = split_process(listen)
    if not is_loopback(host):
        raise NotAllowed(
            f"{listen}: other machines can reach this address, and Kafka clients do not log in",
            "listen on 127.0.0.1, or run `oncecast kafka --sasl --listen-tls`",
        )
    options = client.parts.options
    listener = Listener(options.anonymous_at(options.address), host, port, auto_create=auto_create)
    async with listener:
        yield listener.address
