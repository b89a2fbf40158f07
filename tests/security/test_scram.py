"""Test SCRAM-SHA-256, with the test vector from RFC 7677."""

from __future__ import annotations

from base64 import b64decode

import pytest

from oncecast.errors import InvalidArgument, NotAuthenticated
from oncecast.security.scram import ITERATIONS_MAX, ClientExchange, ServerExchange, derive, prepared
from oncecast.security.values import Credentials

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = derive("pencil", SALT, 4096)
KEY = b"k" * 32

CLIENT_FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(user: str = "user", password: str = "pencil") -> ClientExchange:
    return ClientExchange(user, password, "rOprNGfwEbeRWgbNEkqO")


def server(**users: Credentials) -> ServerExchange:
    return ServerExchange("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", users.get, decoy_key=KEY)


def test_messages_match_the_rfc_7677_test_vector() -> None:
    """SEC-2"""
    ours, theirs = client(), server(user=PENCIL)
    assert ours.first() == CLIENT_FIRST
    assert theirs.first(CLIENT_FIRST) == SERVER_FIRST
    assert ours.final(SERVER_FIRST) == CLIENT_FINAL
    assert theirs.final(CLIENT_FINAL) == ("user", SERVER_FINAL)
    ours.verify(SERVER_FINAL)


def refusal_of(user: str, password: str) -> str:
    ours, theirs = client(user, password), server(user=PENCIL)
    proof = ours.final(theirs.first(ours.first()))
    with pytest.raises(NotAuthenticated) as refused:
        theirs.final(proof)
    return str(refused.value)


def test_wrong_password_and_unknown_user_get_the_same_refusal() -> None:
    """SEC-2"""
    assert refusal_of("user", "Pencil") == refusal_of("ghost", "pencil")


def test_unknown_user_gets_the_same_salt_each_time() -> None:
    """SEC-2: otherwise a client could find out which users exist."""
    first = server().first(client("ghost").first())
    assert first == server().first(client("ghost").first())
    assert first != server().first(client("spirit").first())


def test_stored_credentials_cannot_be_used_as_a_password() -> None:
    """SEC-4: a stolen table of credentials contains no password."""
    assert b"pencil" not in b"".join((PENCIL.salt, PENCIL.stored_key, PENCIL.server_key))
    assert refusal_of("user", PENCIL.stored_key.hex())


def test_client_detects_a_node_that_does_not_know_the_password() -> None:
    """SEC-2"""
    ours, hostile = client(), server(user=derive("guess", SALT, 4096))
    ours.final(hostile.first(ours.first()))
    with pytest.raises(NotAuthenticated, match="did not prove"):
        ours.verify(SERVER_FINAL.replace("v=6", "v=7"))
    with pytest.raises(NotAuthenticated, match="did not prove"):
        client().verify("v=")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "r=x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace("4096", "1"),
        SERVER_FIRST.replace("4096", str(ITERATIONS_MAX + 1)),
        SERVER_FIRST.replace("4096", "9" * 5000),
        SERVER_FIRST.replace("4096", "x"),
        SERVER_FIRST.replace("s=W", "s=!"),
    ],
)
def test_client_refuses_an_invalid_challenge(answer: str) -> None:
    """SEC-2: some iteration counts would make guessing cheap or the login endless."""
    with pytest.raises(NotAuthenticated):
        client().final(answer)


@pytest.mark.parametrize(
    "first",
    ["", "y,,n=user,r=rOprNGfwEbeRWgb", "n,,n=user", "n,,n=user,r=short", f"n,,n=u,r={'x' * 999}"],
)
def test_node_refuses_an_invalid_first_message(first: str) -> None:
    with pytest.raises(NotAuthenticated):
        server(user=PENCIL).first(first)


@pytest.mark.parametrize(
    "final",
    [
        "",
        CLIENT_FINAL.replace("biws", "eSws"),
        CLIENT_FINAL.replace("r=r", "r=R"),
        CLIENT_FINAL.replace("p=d", "p=e"),
        CLIENT_FINAL.rpartition("p=")[0] + "p=",
    ],
)
def test_node_refuses_an_invalid_proof(final: str) -> None:
    theirs = server(user=PENCIL)
    theirs.first(CLIENT_FIRST)
    with pytest.raises(NotAuthenticated):
        theirs.final(final)


def test_login_proof_is_not_valid_for_another_login() -> None:
    theirs = ServerExchange("another nonce", {"user": PENCIL}.get, decoy_key=KEY)
    theirs.first(CLIENT_FIRST)
    with pytest.raises(NotAuthenticated):
        theirs.final(CLIENT_FINAL)


def test_user_names_may_contain_separators() -> None:
    name = "a=2C,b=3D"
    ours, theirs = client(name), ServerExchange("nonce", {name: PENCIL}.get, decoy_key=KEY)
    assert theirs.final(ours.final(theirs.first(ours.first())))[0] == name


@pytest.mark.parametrize(
    ("text", "result"), [("I\u00adX", "IX"), ("user", "user"), ("\u00aa", "a"), ("\u2168", "IX")]
)
def test_text_is_prepared_as_in_rfc_4013(text: str, result: str) -> None:
    assert prepared(text) == result


@pytest.mark.parametrize("text", ["\u0007", "\u06271"])
def test_text_prohibited_by_rfc_4013_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        prepared(text)
