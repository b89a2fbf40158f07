"""The acceptor's side of the handshake: identify a dialler and decide whether to accept it.

`handshake.py` lists all ways to log in.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from oncecast.errors import BadAddress, NotAuthenticated, OutOfPlace, Refused
from oncecast.network.addresses import is_loopback, split
from oncecast.network.failures import Failures
from oncecast.network.handshake import PEER, Ask, Challenge, Hello, Proof, meeting_of
from oncecast.network.login import CERTIFICATE, NONE, PASSWORD, SECRET, TOKEN, Attempt
from oncecast.network.trust import Trust
from oncecast.security.certificates import Certificate, check_node
from oncecast.security.meeting import ACCEPTOR, DIALLER, NONCE_BYTES
from oncecast.security.principals import ANONYMOUS, NODE
from oncecast.security.scram import ServerExchange

TEXT_NONCE_BYTES = 18  # a multiple of 3, so its base64 needs no padding


class Dialler(NamedTuple):
    """A connection that has not been accepted yet."""

    address: str  # host:port
    certificate: Certificate | None
    ask: Ask


class Admission(NamedTuple):
    """An accepted login, with the proofs for the Welcome."""

    principal: str = ANONYMOUS
    login: str = ""
    mac: bytes = b""
    agent: str = ANONYMOUS  # the principal that logged in, if it acts for another one


class Gate:
    def __init__(self, trust: Trust) -> None:
        self.exposed = False  # other machines can reach the listener
        self._trust, self._logins = trust, trust.logins
        self._decoy_key = secrets.token_bytes(32)
        self._failures = Failures()

    async def admit(self, hello: Hello, dialler: Dialler) -> Admission:
        """Admit a dialler, or raise Refused or a ProtocolError."""
        if hello.role == PEER:
            return await self._peer(hello, dialler)
        return await self._client(hello, dialler)

    # -- peers --

    async def _peer(self, hello: Hello, dialler: Dialler) -> Admission:
        tls, secret, node = self._trust.tls, self._trust.secret, hello.node or hello.sender
        identified = tls is not None and tls.identifies
        if identified:
            check_node(dialler.certificate, host_of(node), node)
        if secret is not None:
            return await self._by_secret(hello, dialler)
        if self.exposed and not identified:
            raise Refused(
                f"{hello.to} refuses all nodes, because other machines can reach it and it has "
                "neither a cluster secret nor TLS with a CA",
                "set cluster_secret_file, or tls_certificate, tls_key and tls_ca, on all nodes",
            )
        return Admission(NODE)

    async def _by_secret(self, hello: Hello, dialler: Dialler) -> Admission:
        secret, sender = self._trust.secret, hello.node or hello.sender or "the node"
        assert secret is not None
        if len(hello.nonce) != NONCE_BYTES:
            raise Refused(
                f"{sender} has no cluster secret",
                "copy this node's cluster_secret_file to that node",
            )
        meeting = meeting_of(hello, secrets.token_bytes(NONCE_BYTES))
        proof = await dialler.ask(Challenge(nonce=meeting.acceptor_nonce))
        if not secret.proves(proved(proof).mac, DIALLER, meeting):
            raise Refused(
                f"{sender} has a different cluster secret",
                "copy this node's cluster_secret_file to that node",
            )
        return Admission(NODE, mac=secret.proof(ACCEPTOR, meeting))

    # -- clients --

    async def _client(self, hello: Hello, dialler: Dialler) -> Admission:
        how = self._how(hello, dialler)
        scram = ServerExchange(
            secrets.token_urlsafe(TEXT_NONCE_BYTES),
            self._logins.credentials,
            decoy_key=self._decoy_key,
        )
        try:
            if hello.node:
                admission = await self._peer(hello, dialler)
            elif how == PASSWORD:
                admission = await self._by_password(scram, hello, dialler)
            elif how == SECRET:
                admission = await self._by_secret(hello, dialler)
            else:
                admission = Admission(self._principal(how, hello, dialler))
            if hello.acts_for:
                admission = self._acting(admission, hello.acts_for)
            self._check_name(admission.principal, hello.sender)
        except Refused as refused:
            failed = Attempt(dialler.address, how, scram.user, hello.sender, refused.message)
            self._logins.report(failed)
            raise
        if how != NONE:
            attempt = Attempt(dialler.address, how, admission.principal, hello.sender)
            self._logins.report(attempt)
        return admission

    def _how(self, hello: Hello, dialler: Dialler) -> str:
        """Return how a client logs in. An explicit login takes precedence over a certificate."""
        if hello.login:
            return PASSWORD
        if hello.token:
            return TOKEN
        if hello.nonce and self._trust.secret is not None:
            return SECRET
        return CERTIFICATE if named(dialler.certificate) else NONE

    async def _by_password(
        self, scram: ServerExchange, hello: Hello, dialler: Dialler
    ) -> Admission:
        challenge = Challenge(scram.first(hello.login))
        host = dialler.address.rpartition(":")[0]
        self._failures.begin(host, scram.user)
        admission = Admission(*scram.final(proved(await dialler.ask(challenge)).login))
        self._failures.succeeded(host, scram.user)
        return admission

    def _acting(self, admission: Admission, user: str) -> Admission:
        """Return the admission of a client that acts for this user, or raise Refused."""
        agent = admission.principal
        if not self._logins.may_act(agent, user):
            raise NotAuthenticated(
                f"{agent or 'an anonymous client'} may not act for {user[:40]!r}",
                "check that the user exists, and log in as an administrator",
            )
        return admission._replace(principal=user, agent=agent)

    def _principal(self, how: str, hello: Hello, dialler: Dialler) -> str:
        if how == CERTIFICATE:
            return named(dialler.certificate)
        if how == TOKEN:
            principal = self._logins.principal_of_token(hello.token)
            if principal is None:
                raise NotAuthenticated()
            return principal
        if self._logins.required:
            raise NotAuthenticated(
                "this node requires a login",
                "provide a user and password, a token, or a client certificate",
            )
        if self._open_to_strangers(dialler):
            raise NotAuthenticated(
                "this node has no users yet, so clients from other machines need a certificate",
                "add a user on the node's machine, or use a certificate",
            )
        return ANONYMOUS

    def _open_to_strangers(self, dialler: Dialler) -> bool:
        """Return whether this client would get full access from another machine without a login."""
        tls = self._trust.tls
        if tls is None or self._trust.insecure or dialler.certificate is not None:
            return False
        return not is_loopback(dialler.address.rpartition(":")[0])

    def _check_name(self, principal: str, name: str) -> None:
        """Raise Refused if the client name belongs to another principal."""
        if name and not self._logins.may_use(principal, name):
            raise Refused(
                f"{principal or 'an anonymous client'} may not use the client name {name[:40]!r}",
                f"use a name that starts with {principal}." if principal else "log in",
            )


def named(certificate: Certificate | None) -> str:
    """Return the principal of a certificate, or "" if there is none."""
    if certificate is None:
        return ANONYMOUS
    return NODE if certificate.is_node else certificate.client


def proved(greeting: object) -> Proof:
    if not isinstance(greeting, Proof):
        raise OutOfPlace("the dialler answered a Challenge with something other than a Proof")
    return greeting


def host_of(address: str) -> str:
    try:
        return split(address)[0]
    except BadAddress as error:
        raise Refused(error.message, error.remedy) from None
