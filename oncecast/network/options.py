"""The limits and time-outs of a node on the network, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

KiB, MiB = 1024, 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Options:
    """Times are in seconds. docs/network.md says what happens at each limit."""

    cluster: str = "oncecast"  # nodes of different clusters refuse each other

    frame_bytes_max: int = 64 * MiB  # the largest message
    batch_bytes_max: int = 0  # that a client may send, as it is told when it comes; 0: no word
    queue_bytes_max: int = 16 * MiB  # unsent to one peer: beyond, its link is reset
    waiting_bytes_max: int = 1 * MiB  # for a peer that is not connected: beyond, dropped
    connections_max: int = (
        800  # accepted ones; keep it well below the process's limit of open files
    )
    strangers_max: int = 128  # of these, not yet through the handshake; a new one ousts the oldest

    handshake_timeout: float = 5.0
    frame_timeout: float = 30.0  # for a frame, and 1 s more for each KiB of it that has come
    keepalive: float = 2.0  # between pings; three times that without a word is a lost link
    unused_after: float = 60.0  # a link nobody watches or sends over is closed
    backoff_min: float = 0.1  # the first reconnect waits up to this long, each further one twice it
    backoff_max: float = 5.0
    drain_timeout: float = 5.0  # what a clean stop gives the send queues

    inline_bytes_max: int = 64 * KiB  # a larger group of records is written in a thread
    idle_after: float = 0.05  # without a new record; then the log notes that all of it is synced
    unsynced_bytes_max: int = 64 * MiB  # records that wait for the disk: beyond, nothing is read
    held_max: int = 100_000  # messages and events that wait for the disk: beyond, nothing is read


@dataclass
class Stats:
    """Counted since the start."""

    accepted: int = 0  # connections
    linked: int = 0  # handshakes done, as the one who dialled
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_dropped: int = 0  # of messages: the peer was away, slow or lost

    # Incidents, each with a line in the log.
    hostile: int = 0  # bytes that break the rules of the wire
    crowded: int = 0  # connections turned away, because there were too many
    overdue: int = 0  # handshakes and frames that were begun and not finished in time
    refused: int = 0  # handshakes turned down, by us or by the other side
    silent: int = 0  # links lost because the other side said nothing any more
    slow: int = 0  # links reset because too much was unsent
    lost: int = 0  # links that the other side or the network closed
    unreachable: int = 0  # links that could not be made
    malformed: int = 0  # messages that no codec here knows
    too_long: int = 0  # messages of our own that no frame may hold

    steps: int = 0  # inputs of the stack
    records: int = 0  # appended
    syncs: int = 0  # groups of records made durable
