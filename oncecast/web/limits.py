"""The limits of the HTTP interface. All times are in seconds."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    body_bytes: int = 16 << 20  # maximum size of a request body
    bodies_bytes: int = 128 << 20  # maximum size of all request bodies together
    response_bytes: int = 8 << 20  # about the maximum size of the messages in one response
    body_timeout: float = 10.0  # time for a body to arrive, plus one second for each 64 KiB
    requests: int = 200  # maximum requests in progress, without tails and long polls
    tails: int = 200  # maximum open tails
    waits: int = 500  # maximum requests that wait for messages
    wait_seconds: float = 60.0  # maximum time that a request waits for messages
    tail_seconds: float = 24 * 3600.0  # maximum time of a tail; then the client reconnects
    sessions: int = 100  # maximum users that are logged in at a time
    session_idle: float = 120.0  # a session without requests is closed after this time
    logins: int = 8  # maximum logins in progress
