"""SCRAM-SHA-256: a client and a node prove to each other that they know a password.

See RFC 5802 (the exchange), RFC 7677 (SHA-256) and RFC 4013 (SASLprep). Names follow RFC 5802.

    client-first    n,,n=USER,r=NONCE             ClientExchange.first()
    server-first    r=NONCE+,s=SALT,i=COUNT       ServerExchange.first(client_first)
    client-final    c=biws,r=NONCE+,p=PROOF       ClientExchange.final(server_first)
    server-final    v=SIGNATURE                   ServerExchange.final(client_final)
                                                  ClientExchange.verify(server_final)

The password never crosses the network. The node stores only values from which the password cannot
be computed. The caller provides the nonces of both sides. Channel binding is not supported.
"""

from __future__ import annotations

import hmac
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import pbkdf2_hmac, sha256

from oncecast.errors import InvalidArgument, NotAuthenticated
from oncecast.security.values import Credentials

ITERATIONS = 100_000
# Minimum of RFC 7677; with fewer iterations, a hostile node could guess the password more easily.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 4_000_000  # maximum, so that a hostile node cannot keep the client busy
SALT_BYTES = 16
NONCE_CHARACTERS_MAX = 256
HEADER = "n,,"  # no channel binding and no authorization identity
BOUND = b64encode(HEADER.encode()).decode()

PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def derive(password: str, salt: bytes, iterations: int = ITERATIONS) -> Credentials:
    """Derive credentials from a password. This deliberately takes several milliseconds."""
    return _credentials(_salted(password, salt, iterations), salt, iterations)


class ClientExchange:
    """The client's side of one login."""

    def __init__(self, user: str, password: str, nonce: str) -> None:
        self._user, self._password, self._nonce = prepared(user), password, nonce
        self._server_signature = b""

    def first(self) -> str:
        return HEADER + self._first_bare()

    def final(self, server_first: str) -> str:
        """Return the client's proof. Raise NotAuthenticated if the challenge is invalid.

        The computation takes several milliseconds.
        """
        fields = _fields(server_first, "rsi")
        nonce, salt, count = fields["r"], _bytes(fields["s"]), fields["i"]
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise NotAuthenticated(
                "the node's answer belongs to another login", "connect to another node"
            )
        if not count.isdecimal() or not ITERATIONS_MIN <= int(count[:10]) <= ITERATIONS_MAX:
            raise NotAuthenticated(
                f"the node requests {count[:20]} iterations (allowed: {ITERATIONS_MIN:,} to "
                f"{ITERATIONS_MAX:,})",
                "connect to another node",
            )
        salted = _salted(self._password, salt, int(count))
        credentials = _credentials(salted, salt, int(count))
        bare = f"c={BOUND},r={nonce}"
        message = f"{self._first_bare()},{server_first},{bare}".encode()
        client_key = _mac(salted, b"Client Key")
        proof = _xor(client_key, _mac(credentials.stored_key, message))
        self._server_signature = _mac(credentials.server_key, message)
        return f"{bare},p={b64encode(proof).decode()}"

    def verify(self, server_final: str) -> None:
        """Raise NotAuthenticated unless the node knows the user's credentials too."""
        expected = self._server_signature
        signature = _bytes(_fields(server_final, "v")["v"])
        if not expected or not hmac.compare_digest(signature, expected):
            raise NotAuthenticated(
                "the node did not prove that it knows this user", "connect to another node"
            )

    def _first_bare(self) -> str:
        return f"n={_escaped(self._user)},r={self._nonce}"


class ServerExchange:
    """The node's side of one login.

    An unknown user gets a salt derived from `decoy_key`, so that a client cannot tell which users
    exist. All nodes of a cluster should use the same key.
    """

    def __init__(
        self, nonce: str, lookup: Callable[[str], Credentials | None], *, decoy_key: bytes
    ) -> None:
        self._own_nonce, self._lookup, self._decoy_key = nonce, lookup, decoy_key
        self.user = ""  # the claimed user, until `final` has verified it
        self._known = False
        self._credentials = Credentials(b"", 0, b"", b"")
        self._messages = ""  # client-first-bare and server-first
        self._nonce = ""

    def first(self, client_first: str) -> str:
        """Return the challenge. Raise NotAuthenticated if the message is invalid."""
        if not client_first.startswith(HEADER):
            raise NotAuthenticated("the login requests an unsupported SCRAM option")
        bare = client_first.removeprefix(HEADER)
        fields = _fields(bare, "nr")
        if not 8 <= len(fields["r"]) <= NONCE_CHARACTERS_MAX:
            raise NotAuthenticated("the login has an invalid nonce")
        self.user = _unescaped(fields["n"])
        found = self._lookup(self.user)
        self._known = found is not None
        self._credentials = found or self._decoy()
        self._nonce = fields["r"] + self._own_nonce
        salt = b64encode(self._credentials.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credentials.iterations}"
        self._messages = f"{bare},{answer}"
        return answer

    def final(self, client_final: str) -> tuple[str, str]:
        """Return the user and the answer. Raise NotAuthenticated if the proof is wrong."""
        bare, _, proof = client_final.rpartition(",p=")
        fields = _fields(bare, "cr")
        known = self._credentials
        message = f"{self._messages},{bare}".encode()
        client_key = _xor(_bytes(proof), _mac(known.stored_key, message))
        proved = hmac.compare_digest(sha256(client_key).digest(), known.stored_key)
        spoken = fields["c"] == BOUND and hmac.compare_digest(
            fields["r"].encode(errors="replace"), self._nonce.encode(errors="replace")
        )
        if not (proved and spoken and self._known):
            raise NotAuthenticated()
        return self.user, f"v={b64encode(_mac(known.server_key, message)).decode()}"

    def _decoy(self) -> Credentials:
        """Return fake credentials that match no password and are the same for each login."""
        user = self.user.encode(errors="replace")
        salt, key = (_mac(self._decoy_key, label + user) for label in (b"salt ", b"key "))
        return Credentials(salt[:SALT_BYTES], ITERATIONS, key, key)


def prepared(text: str) -> str:
    """Return the text normalized as in RFC 4013, so that equal-looking texts are equal.

    Raise InvalidArgument if the text contains a forbidden character.
    """
    mapped = (" " if stringprep.in_table_c12(c) else c for c in text)
    kept = "".join(c for c in mapped if not stringprep.in_table_b1(c))
    text = unicodedata.normalize("NFKC", kept)
    for each in text:
        if each != " " and any(table(each) for table in PROHIBITED):
            raise InvalidArgument(
                f"a user name or password contains the prohibited character {each!r}",
                "use only printable characters",
            )
    if any(map(stringprep.in_table_d1, text)):
        ends = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
        if not ends or any(map(stringprep.in_table_d2, text)):
            raise InvalidArgument(
                "a user name or password mixes left-to-right and right-to-left text",
                "use text in one direction only",
            )
    return text


def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    return pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)


def _credentials(salted: bytes, salt: bytes, iterations: int) -> Credentials:
    stored_key = sha256(_mac(salted, b"Client Key")).digest()
    return Credentials(salt, iterations, stored_key, _mac(salted, b"Server Key"))


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    """Return the XOR of two digests, or a value that matches nothing if their lengths differ."""
    if len(one) != len(other):
        return b""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _fields(message: str, names: str) -> dict[str, str]:
    """Return the values of the attributes `names`, in order. Ignore any extensions after them."""
    parts = message.split(",")[: len(names)]
    if [part[:2] for part in parts] != [f"{name}=" for name in names]:
        raise NotAuthenticated("the login contains an invalid message")
    return {part[0]: part[2:] for part in parts}


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise NotAuthenticated("the login contains an invalid message") from None


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescaped(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")
