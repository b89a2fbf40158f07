"""Manage the cluster's users, tokens and rules. This requires admin permission.

    await client.access.add_user("ann", "secret", admin=True)
    await client.access.allow("bob", "read", "ack", topic="news.*")

Passwords and token secrets never leave this process: nodes receive and store only salted hashes. On
a ring, each group has its own copy of the users, tokens and rules, and every change goes to all
groups.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec

from oncecast.client.arguments import check_password
from oncecast.client.cluster import Cluster
from oncecast.client.requests import Requests
from oncecast.client.session import local
from oncecast.errors import InvalidArgument, NotConnected, OncecastError, TimedOut
from oncecast.security.access import ADMIN, EVERYTHING, VERBS, hash_of, in_order
from oncecast.security.scram import SALT_BYTES, derive
from oncecast.security.values import Rule, token_id
from oncecast.wire import commands as do
from oncecast.wire.access_faults import access_fault
from oncecast.wire.frames import AccessView, ArcView, TokenView

ID_BYTES = 8
SECRET_BYTES = 32
TOGETHER = 16  # maximum number of groups of a ring to query concurrently
ROUNDS = 5  # maximum attempts to read all pages at the same version
PAUSE = 0.05  # seconds between queries while a new ring has no owners

T = TypeVar("T")


class TokenInfo(msgspec.Struct, frozen=True):
    """A token without its secret. `expires` is in seconds since 1970, or None for no expiry."""

    id: str
    principal: str
    expires: float | None


class AccessControl:
    """The cluster's users, tokens and rules, available as `client.access`."""

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        at: Callable[
            [str], AbstractAsyncContextManager[AccessControl]
        ],  # opens a connection to another address
    ) -> None:
        self._requests, self._cluster, self._at = requests, cluster, at

    # -- users --

    async def add_user(
        self, name: str, password: str | None = None, *, admin: bool = False
    ) -> None:
        """Add a user, or change an existing user's password.

        Without a password, the user logs in with a certificate or a token. The first user must be
        an administrator. From then on, every request needs a rule that permits it.
        """
        credentials = None
        if password is not None:
            check_password(password)
            salt = secrets.token_bytes(SALT_BYTES)
            credentials = await asyncio.to_thread(derive, password, salt)
        await self._change(do.AddUser(name, credentials, admin))

    async def remove_user(self, name: str) -> bool:
        """Remove a user with its tokens and rules, and close its connections.

        Return whether the user existed.
        """
        return await self._change(do.RemoveUser(name))

    async def users(self) -> list[str]:
        return [name for view in await self._newest() for name in view.users]

    # -- tokens --

    async def create_token(self, principal: str, expires_after: float | None = None) -> str:
        """Create and return a token for clients that log in as `principal`.

        The token is valid for `expires_after` seconds, or until it is revoked. Nodes store only a
        hash of its secret, so the token cannot be shown again.
        """
        if expires_after is not None and not expires_after > 0:
            raise InvalidArgument(
                f"expires_after is {expires_after}", "use a positive number of seconds"
            )
        id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        salt, lifetime = secrets.token_bytes(SALT_BYTES), int((expires_after or 0) * 1e6)
        await self._change(do.CreateToken(id, principal, salt, hash_of(secret, salt), 0, lifetime))
        return f"{id}.{secret}"

    async def revoke_token(self, token: str) -> bool:
        """Revoke a token, given in full or by its id. Return whether it existed."""
        return await self._change(do.RevokeToken(token_id(token)))

    async def tokens(self) -> list[TokenInfo]:
        return [shown(token) for view in await self._newest() for token in view.tokens]

    # -- rules --

    async def allow(self, principal: str, *verbs: str, topic: str = "", name: str = "") -> bool:
        """Allow these verbs on matching topics, or the use of matching names.

        The verbs are put, read, ack, manage and admin. Patterns may contain `*` and `?`. The
        principal `*` matches every client. Return whether the rule is new.
        """
        return await self._change(do.Allow(rule_of(principal, verbs, topic, name)))

    async def disallow(self, principal: str, *verbs: str, topic: str = "", name: str = "") -> bool:
        """Revoke these verbs, or all verbs, for the same pattern. Return whether a rule changed."""
        return await self._change(do.Disallow(rule_of(principal, verbs, topic, name)))

    async def rules(self) -> list[Rule]:
        return [rule for view in await self._newest() for rule in view.rules]

    # -- one group --

    async def change_here(self, command: do.AccessCommand) -> bool:
        """Run the command in the connected group only. Return whether it changed anything."""
        return await self._requests.changes(command)

    async def views_here(self) -> list[AccessView]:
        """Return all pages from the connected group. Raise TimedOut if they keep changing."""
        for _ in range(ROUNDS):
            views = [await self._page(0)]
            while views[-1].next and views[-1].version == views[0].version:
                views.append(await self._page(views[-1].next))
            if views[-1].version == views[0].version:
                return views
        raise TimedOut("users and rules are changing too fast to list", "try again")

    async def _page(self, first: int) -> AccessView:
        seconds = self._requests.timeout
        view: AccessView = await self._requests.answer(
            lambda ticket: local.ShowAccess(ticket, first, seconds), None
        )
        return view

    # -- all groups --

    async def _groups(self) -> list[ArcView]:
        """Return the groups of a ring that own topics, or an empty list outside a ring."""
        try:
            async with asyncio.timeout(self._requests.timeout):
                while True:
                    ring = await self._cluster.ring()
                    owners = [arc for arc in ring.groups if arc.low and arc.nodes]
                    if owners or not ring.processes:
                        return owners
                    await asyncio.sleep(PAUSE)  # a new ring has no owners for a moment
        except OncecastError:
            raise
        except TimeoutError:
            raise TimedOut("no group of the ring owns topics yet", "try again later") from None

    async def _change(self, command: do.AccessCommand) -> bool:
        fault = access_fault(command)
        if fault is not None:
            raise fault.raised()
        groups = await self._groups()
        if not groups:
            return await self.change_here(command)
        # Try one group first. If it refuses the change, the other groups never see it.
        changed, late = await self._of_each(groups[:1], lambda one: one.change_here(command))
        others, more = await self._of_each(groups[1:], lambda one: one.change_here(command))
        late.update(more)
        if late:
            raise unreached(late, len(groups))
        return any((*changed, *others))

    async def _newest(self) -> list[AccessView]:
        """Return the pages from the group with the newest version."""
        groups = await self._groups()
        if not groups:
            return await self.views_here()
        found, late = await self._of_each(groups, lambda one: one.views_here())
        if not found:
            raise unreached(late, len(groups))
        return max(found, key=lambda views: views[0].version)

    async def _of_each(
        self, groups: list[ArcView], work: Callable[[AccessControl], Awaitable[T]]
    ) -> tuple[list[T], dict[str, OncecastError]]:
        """Run `work` in each group. Return the results, and the errors from unreachable groups."""

        async def one(arc: ArcView) -> T:
            async with self._at(",".join(arc.nodes)) as access:
                return await work(access)

        found: list[T] = []
        late: dict[str, OncecastError] = {}
        for at in range(0, len(groups), TOGETHER):
            some = groups[at : at + TOGETHER]
            outcomes = await asyncio.gather(*map(one, some), return_exceptions=True)
            for arc, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, TimedOut | NotConnected):
                    late[arc.group] = outcome
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    found.append(outcome)
        return found, late


def rule_of(principal: str, verbs: tuple[str, ...], topic: str, name: str) -> Rule:
    unknown = [verb for verb in verbs if verb not in VERBS]
    if unknown:
        raise InvalidArgument(f"{unknown[0]!r} is not a verb", f"choose from {', '.join(VERBS)}")
    if ADMIN in verbs and not topic and not name:
        topic = EVERYTHING
    return Rule(principal, in_order(verbs), topic, name)


def shown(token: TokenView) -> TokenInfo:
    return TokenInfo(
        token.id, token.principal, token.expires_us / 1e6 if token.expires_us else None
    )


def unreached(late: dict[str, OncecastError], total: int) -> OncecastError:
    """Return the error to raise for groups that did not answer."""
    first = next(iter(late.values()))
    fact = f"{len(late)} of {total} groups cannot be reached ({', '.join(late)}): {first.message}"
    return first.reworded(fact, "the other groups answered; repeat the call later")
