"""Random bytes that an attacker cannot predict.

The standard library's `secrets` does the same but loads OpenSSL, which short commands do not need.
"""

from __future__ import annotations

import os

random_bytes = os.urandom


def random_hex(size: int) -> str:
    """Return `size` random bytes as hexadecimal digits."""
    return random_bytes(size).hex()


def random_id() -> int:
    """Return a random number below 2^63, which fits into a signed 64-bit integer."""
    return int.from_bytes(random_bytes(8)) >> 1
