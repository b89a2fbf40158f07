"""A node's network limits, timeouts and counters."""

from __future__ import annotations

import msgspec

KiB, MiB = 1024, 1024 * 1024


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timeouts, in bytes and seconds. docs/network.md describes each option."""

    cluster: str = "oncecast"  # nodes in different clusters refuse each other

    frame_bytes_max: int = 64 * MiB  # maximum size of a message
    # Maximum size of client batches, sent in the handshake; 0 for no limit.
    batch_bytes_max: int = 0
    # Maximum unsent bytes to one peer; beyond this, the link is reset.
    queue_bytes_max: int = 16 * MiB
    # Maximum unsent bytes to one client; beyond this, serving pauses.
    unsent_bytes_max: int = 8 * MiB
    # Maximum unsent bytes to all clients; beyond this, the slowest link is reset.
    unsent_total_max: int = 128 * MiB
    # Maximum unsent bytes to a lost peer; beyond this, messages are dropped.
    waiting_bytes_max: int = 1 * MiB
    # Maximum client and peer connections. Keep their sum below the open file limit.
    connections_max: int = 800
    user_connections_max: int = 0  # maximum connections per user; 0 for no separate limit
    # Maximum connections per host, for clients without a login; 0 for no separate limit.
    host_connections_max: int = 0
    peers_max: int = 128
    handshakes_max: int = 128  # maximum pending handshakes; beyond this, the oldest is closed

    handshake_timeout: float = 5.0
    frame_timeout: float = 30.0  # seconds to receive a frame, plus 1 s per KiB received
    keepalive: float = 2.0  # seconds between pings; a link is lost after three silent intervals
    unused_after: float = 60.0  # seconds before a link without messages and watchers is closed
    backoff_min: float = 0.1  # maximum delay of the first reconnect; it doubles each time
    backoff_max: float = 5.0
    drain_timeout: float = 5.0  # seconds to empty the send queues during a clean stop

    # Maximum bytes of records written in the event loop; a thread writes larger groups.
    inline_bytes_max: int = 64 * KiB
    idle_after: float = 0.05  # seconds without new records before the log is marked as fully synced
    unsynced_bytes_max: int = 64 * MiB  # maximum unsynced bytes; beyond this, reading pauses
    busy_poll: float = 0.0  # seconds to poll after a message instead of sleeping; 0 to never poll
    # Maximum messages and events that wait for the disk; beyond this, reading pauses.
    held_max: int = 100_000


class Stats(msgspec.Struct):
    """Counters since the process started."""

    accepted: int = 0  # accepted connections
    linked: int = 0  # links established to peers
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_dropped: int = 0  # message bytes dropped because a peer was disconnected or slow

    # Incidents. These are also logged.
    hostile: int = 0  # connections closed for protocol violations
    crowded: int = 0  # connections closed because there were too many
    overdue: int = 0  # handshakes and frames that timed out
    refused: int = 0  # handshakes refused by either side
    silent: int = 0  # connections closed because the peer was silent
    slow: int = 0  # connections reset because too many bytes were unsent
    lost: int = 0  # links closed by the peer or the network
    unreachable: int = 0  # failed attempts to connect
    malformed: int = 0  # messages that could not be decoded
    too_long: int = 0  # messages not sent because they exceed frame_bytes_max

    steps: int = 0  # inputs that the stack has processed
    records: int = 0  # records appended
    syncs: int = 0  # groups of records written to disk
