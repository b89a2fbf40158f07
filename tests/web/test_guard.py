"""Requests of other sites and of ambiguous form are refused (WEB-1)."""

from __future__ import annotations

import pytest

from oncecast.errors import BadRequest, CrossSite, HeadTooLarge, WrongHost
from oncecast.web.guard import ADDRESSES, LOOPBACK, Guard

HOST = "localhost:8400"


def check(method: str = "GET", /, **headers: str) -> None:
    checked(LOOPBACK, method, **headers)


def checked(hosts: tuple[str, ...], method: str = "GET", /, **headers: str) -> None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    Guard(hosts).check(method, {"host": HOST} | given, "http")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8400", "127.0.0.1", "[::1]:8400", "localhost.:8400"]
)
def test_host_header_may_name_the_server(host: str) -> None:
    """WEB-1"""
    check(host=host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"],
)
def test_other_host_is_refused(host: str) -> None:
    """WEB-1: a name that an attacker resolves to this server is not served."""
    with pytest.raises(WrongHost):
        check(host=host)


def test_server_for_other_machines_accepts_addresses_but_no_other_names() -> None:
    """WEB-1"""
    checked((*LOOPBACK, ADDRESSES), host="10.0.0.1:8400")
    with pytest.raises(WrongHost):
        checked((*LOOPBACK, ADDRESSES), host="evil.example")
    checked(("*",), host="evil.example")


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/json"},
        {"content_type": "Application/JSON; charset=utf-8"},
        {"content_type": "application/octet-stream"},
        {"oncecast_request": "1"},
        {"oncecast_producer": "p", "content_type": "text/plain"},
        {"oncecast_request": "1", "origin": "http://localhost:8400"},
        {"oncecast_request": "1", "sec_fetch_site": "same-origin"},
    ],
)
def test_write_with_deliberate_content_type_or_header_is_allowed(headers: dict[str, str]) -> None:
    """WEB-1"""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        check(method, **headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "multipart/form-data; boundary=x"},
        {"content_type": "text/plain; application/json"},
        {"oncecast_request": "1", "origin": "http://evil.example"},
        {"oncecast_request": "1", "origin": "null"},
        {"oncecast_request": "1", "origin": "https://localhost:8400"},
        {"oncecast_request": "1", "origin": "http://localhost:8401"},
        {"oncecast_request": "1", "sec_fetch_site": "cross-site"},
        {"oncecast_request": "1", "sec_fetch_site": "same-site"},
    ],
)
def test_write_that_another_site_can_send_is_refused(headers: dict[str, str]) -> None:
    """WEB-1"""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(CrossSite):
            check(method, **headers)


def test_link_from_another_site_opens_the_console_but_other_requests_are_refused() -> None:
    """WEB-1"""
    check("GET", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    with pytest.raises(CrossSite):
        check("GET", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")


def test_large_headers_are_refused() -> None:
    """WEB-1"""
    with pytest.raises(HeadTooLarge):
        check(x="a" * 17_000)


def test_request_with_two_lengths_is_refused() -> None:
    """WEB-1: a proxy in front might see two requests where this server sees one."""
    with pytest.raises(BadRequest):
        check("POST", transfer_encoding="chunked", content_length="3", oncecast_request="1")
