"""The docs pages on the ring and on push delivery list all messages, timers and options."""

from __future__ import annotations

import inspect

import pytest

from oncecast.kernel.protocol import Protocol
from oncecast.kernel.stack import members
from oncecast.ring.mover import Mover
from oncecast.ring.owner_lookup import OwnerLookup
from oncecast.ring.pusher import Pusher
from oncecast.ring.relay import Relay
from oncecast.ring.resolver import Resolver
from oncecast.ring.roster import Roster
from tests.overlay.test_pages import PAGES, ROW, TABLE

Layers = list[type[Protocol]]


def rows(page: str, title: str) -> list[tuple[str, str]]:
    """Return the rows of all tables with this title, in order."""
    text = (PAGES / page).read_text()
    found = [table for head, table in TABLE.findall(text) if head == title]
    return [row for table in found for row in ROW.findall(table)]


@pytest.mark.parametrize(
    ("page", "layers"),
    [("ring.md", [Mover, Roster, OwnerLookup, Resolver]), ("push.md", [Relay, Pusher])],
)
def test_page_lists_all_messages_timers_and_options(page: str, layers: Layers) -> None:
    for title in ("message", "timer"):
        kinds = [kind.__name__ for each in layers for kind in members(getattr(each, title.title()))]
        assert [name for name, _ in rows(page, title)] == kinds
    options = [
        (name, "required" if each.default is each.empty else str(each.default) or '""')
        for layer in layers
        for name, each in inspect.signature(layer).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    ]
    assert rows(page, "option") == options
