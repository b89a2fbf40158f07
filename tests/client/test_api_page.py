"""docs/api.md lists exactly the calls, options and errors of the library."""

from __future__ import annotations

import inspect
import re

import pytest

import oncecast
from oncecast import blocking
from oncecast.client.access import AccessControl
from oncecast.client.client import Client
from oncecast.client.dead_letters import DeadLetters
from oncecast.client.jobs import SharedSubscription
from oncecast.client.subscription import Subscription
from oncecast.client.transactions import Transaction
from tests.client.test_blocking import ONLY_ASYNC
from tools.check_docs import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()
OF_TRANSACTIONS = {"claim", "give_back", "resolve", "transacted"}
INSIDE = OF_TRANSACTIONS | {
    *("arrived", "ended", "fail", "positioned", "ready", "skipped", "take_arrived")
}
INSIDE_SHARED = OF_TRANSACTIONS | {"ended", "expired", "fail", "given", "lost", "settle"}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("kind", "hidden"),
    [
        (Client, ONLY_ASYNC),
        (Subscription, INSIDE),
        (SharedSubscription, INSIDE_SHARED),
        (Transaction, set()),
        (DeadLetters, set()),
        (AccessControl, set()),
    ],
)
def test_calls_are_documented_with_their_parameters(kind: type, hidden: set[str]) -> None:
    """SVC-1"""
    reported = section(kind.__name__)
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in hidden:
            continue
        call = re.search(rf"`{name}\((?P<parameters>.*?)\)`", reported)
        assert call, f"{name} is not documented"
        parameters = [each.split("=")[0].strip() for each in call["parameters"].split(", ") if each]
        assert parameters == list(inspect.signature(member).parameters)[1:]


def test_client_options_are_documented() -> None:
    """SVC-1"""
    options = [name for name in inspect.signature(Client).parameters if name != "address"]
    head = PAGE.split("\n## Client\n")[0]
    assert re.findall(r"^\| `(\w+)` \| (?:none|`|\d)", head, re.MULTILINE) == options


def test_all_public_names_exist() -> None:
    for name in oncecast.__all__:
        assert getattr(oncecast, name) is not None
    for name in blocking.__all__:
        assert getattr(blocking, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = oncecast.nonsense
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = blocking.nonsense
