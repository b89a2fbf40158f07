"""The docs pages on Chord and Scribe list exactly their messages, timers and options."""

from __future__ import annotations

import pytest

from oncecast.dht.chord import Chord
from oncecast.dht.scribe import Scribe
from oncecast.kernel.protocol import Protocol
from tests.overlay.test_pages import (
    test_protocol_page_lists_every_message_timer_and_record as names_types,
)
from tests.overlay.test_pages import (
    test_protocol_page_lists_every_option_with_its_default as names_options,
)


@pytest.mark.pure
@pytest.mark.parametrize("protocol", [Chord, Scribe])
def test_protocol_page_lists_all_messages_timers_and_options(protocol: type[Protocol]) -> None:
    names_types(protocol)
    names_options(protocol)
