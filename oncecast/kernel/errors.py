"""What can go wrong on the network, as exceptions a caller can tell apart.

NetworkError
├── CannotListen         the address is taken, unknown, or open to the world without TLS
├── BadAddress           a node id that is not "host:port"
├── TlsUnusable          certificate, key or CA cannot be used
├── Refused              the other side turned our Hello down, and said why
├── Absent               who was dialled is not behind that door, and may come or come back
└── ProtocolError        bytes that break the rules of the wire: their connection is closed
    ├── NotOncecast      the first bytes are no preamble: HTTP, TLS, a port scanner
    ├── WrongFormat      a preamble of another wire format
    ├── FrameTooLong     a frame announces more bytes than are allowed
    ├── Malformed        bytes that are no value of the codec
    └── OutOfPlace       a frame that may not come here and now
"""

from __future__ import annotations


class NetworkError(Exception):
    """The root: everything the network raises for a caller to handle."""


class CannotListen(NetworkError):
    pass


class BadAddress(NetworkError, ValueError):
    pass


class TlsUnusable(NetworkError):
    pass


class Refused(NetworkError):
    pass


class Absent(NetworkError):
    pass


class ProtocolError(NetworkError):
    pass


class NotOncecast(ProtocolError):
    pass


class WrongFormat(ProtocolError):
    pass


class FrameTooLong(ProtocolError):
    pass


class Malformed(ProtocolError):
    pass


class OutOfPlace(ProtocolError):
    pass
