"""How long a command waits for its node."""

from __future__ import annotations

import pytest

from oncecast.cli.connecting import ANSWER_TIMEOUT, client_of
from oncecast.cli.main import build_parser


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("get t", ANSWER_TIMEOUT),  # which waits for no messages, but for its node
        ("get t --timeout inf", ANSWER_TIMEOUT),
        ("get t --timeout 3", 3.0),  # without a quorum it would be silent for much longer
        ("get t --timeout 0.1", 1.0),
        ("put t x", ANSWER_TIMEOUT),
        ("put t x --timeout 3", 3.0),
        ("cluster leave --timeout 5", 5.0),
    ],
)
def test_a_node_has_no_longer_for_an_answer_than_the_command_waits(
    words: str, seconds: float
) -> None:
    """CLI-3 SVC-7"""
    assert client_of(build_parser().parse_args(words.split()))._timeout == seconds
