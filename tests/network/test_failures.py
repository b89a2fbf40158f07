"""Password guessing is limited per host and user."""

from __future__ import annotations

import pytest

from oncecast.errors import Absent
from oncecast.network.addresses import network_of
from oncecast.network.failures import HOST_AT_ONCE, KEYS_MAX, USER_AT_ONCE, Failures
from oncecast.network.handshake import Refusal, Welcome
from tests.network.talk import drive
from tests.network.test_login import host, logged_in
from tests.network.users import Users


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def guesses(failures: Failures, host: str, user: str, count: int) -> int:
    """Return how many of the failing logins were checked."""
    for done in range(count):
        try:
            failures.begin(host, user)
        except Absent:
            return done
    return count


def test_password_guesses_for_a_user_are_rate_limited() -> None:
    """SEC-2"""
    clock = Clock()
    failures = Failures(clock)
    assert guesses(failures, "10.0.0.1", "ann", 1000) == USER_AT_ONCE
    clock.now += 60.0
    assert guesses(failures, "10.0.0.1", "ann", 1000) == 10
    clock.now += 3600.0
    assert guesses(failures, "10.0.0.1", "ann", 1000) == USER_AT_ONCE


def test_password_guesses_do_not_delay_other_users_and_hosts() -> None:
    """SEC-3"""
    failures = Failures(Clock())
    guesses(failures, "10.0.0.1", "ann", 1000)
    failures.begin("10.0.0.1", "bob")
    failures.begin("10.0.0.2", "ann")


def test_host_cannot_guess_passwords_for_many_users() -> None:
    """SEC-2"""
    failures = Failures(Clock())
    checked = sum(guesses(failures, "10.0.0.1", f"user {n}", 1) for n in range(1000))
    assert checked == HOST_AT_ONCE


def test_successful_logins_are_not_limited() -> None:
    """SEC-3: a client may reconnect as often as it likes."""
    failures = Failures(Clock())
    for _ in range(1000):
        failures.begin("10.0.0.1", "ann")
        failures.succeeded("10.0.0.1", "ann")


def test_addresses_in_an_ipv6_network_share_a_budget() -> None:
    """SEC-2: a host often has 2**64 addresses."""
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db9::1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of("?") == "?"


def test_memory_for_failed_logins_is_limited() -> None:
    """SEC-3"""
    failures = Failures(Clock())
    for n in range(2 * KEYS_MAX):
        failures.begin(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", "ann")
    assert len(failures._due) == KEYS_MAX


def test_node_stops_checking_passwords_after_too_many_failed_logins() -> None:
    """SEC-2: after too many wrong passwords, the right one is refused too."""

    async def test() -> None:
        async with host(Users()) as node:
            for n in range(USER_AT_ONCE):
                assert isinstance(await logged_in(node, "ann", f"guess {n}"), Refusal)
            refused = await logged_in(node, "ann", "tulip")
            assert isinstance(refused, Refusal)
            assert refused.passing
            assert "too many failed logins from 127.0.0.1; try again in" in refused.reason

    drive(test())


def test_client_that_knows_its_password_is_not_limited() -> None:
    """SEC-3"""

    async def test() -> None:
        async with host(Users()) as node:
            for _ in range(2 * USER_AT_ONCE):
                assert isinstance(await logged_in(node, "ann", "tulip"), Welcome)

    drive(test())


@pytest.mark.parametrize("count", [0, 1])
def test_successful_login_does_not_count_as_a_failure(count: int) -> None:
    clock = Clock()
    failures = Failures(clock)
    failures.begin("10.0.0.1", "ann")
    clock.now += 3600.0 * count
    failures.succeeded("10.0.0.1", "ann")
    assert guesses(failures, "10.0.0.1", "ann", 1000) == USER_AT_ONCE
