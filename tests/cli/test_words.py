"""CLI-1: split a shell line into words, and complete them."""

from __future__ import annotations

import pytest

from oncecast.cli.main import build_parser
from oncecast.cli.shell.conversation import Conversation
from oncecast.cli.shell.words import Completion, divide, unfinished

TOPICS = ["my data", "my diary", "news", "new\nline", 'say "hi"', "it's"]


def subscriptions(topic: str) -> list[str]:
    return ["default", "daily report"] if topic == "my data" else []


@pytest.fixture(scope="module")
def completion() -> Completion:
    shell = build_parser().parse_args(["shell"])
    parser = Conversation(shell).parser
    return Completion(
        parser, lambda prefix: [each for each in TOPICS if each.startswith(prefix)], subscriptions
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  # a comment", []),
        ("put t #1", ["put", "t", "#1"]),
        ('publish "my data" it\\\'s', ["put", "my data", "it's"]),
        ("topics --json", ["topic", "list", "--json"]),
        ("subs", ["subs", "list"]),
        ("subs news", ["subs", "list", "news"]),
        ("subs lag news", ["subs", "lag", "news"]),
        ("seek news earliest", ["subs", "seek", "news", "earliest"]),
        ("oncecast topic create t", ["topic", "create", "t"]),
        ("quit", ["exit"]),
        ("?", ["help"]),
    ],
)
def test_line_is_split_as_in_a_unix_shell(line: str, words: list[str]) -> None:
    assert divide(line) == words


def test_missing_quote_is_an_error() -> None:
    with pytest.raises(ValueError, match="quotation"):
        divide("put t it's")


@pytest.mark.parametrize(
    ("line", "words", "typed", "text"),
    [
        ("get ne", ["get"], "ne", "ne"),
        ("get ", ["get"], "", ""),
        ('get "my da', ["get"], '"my da', "my da"),
        ("get my\\ da", ["get"], "my\\ da", "my da"),
        ("get my\\", ["get"], "my\\", "my"),
        ("get 'a \"b", ["get"], "'a \"b", 'a "b'),
        ('put "my data" x', ["put", "my data"], "x", "x"),
    ],
)
def test_word_before_the_cursor_can_be_quoted(
    line: str, words: list[str], typed: str, text: str
) -> None:
    assert unfinished(line) == (words, (typed, text))


@pytest.mark.parametrize(
    ("line", "typed", "found"),
    [
        ("s", "s", ["seek", "status", "sub", "subs", "subscribe"]),
        ("wa", "wa", ["watch "]),
        ("topic de", "de", ["delete", "describe"]),
        ("subs la", "la", ["lag "]),
        ("subs ne", "ne", ["news "]),
        ("get ne", "ne", ["news "]),
        ("put news ne", "ne", []),
        ("seek news e", "e", ["earliest "]),
        ("sub news --start n", "n", ["new "]),
        ("get news --sub", "--sub", ["--subscription "]),
        ('get "my data" --subscription d', "d", ['"daily report"', '"default"']),
        ("get news --subscription d", "d", []),
        ("get --subscription x ne", "ne", ["news "]),
        ("help unw", "unw", ["unwatch "]),
        ("nonsense x", "x", []),
    ],
)
def test_completions_fit_the_position_in_the_command(
    completion: Completion, line: str, typed: str, found: list[str]
) -> None:
    assert completion(line) == (typed, found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("get my", ['"my data"', '"my diary"']),
        ('get "my d', ['"my data"', '"my diary"']),
        ("get my\\ da", ["my\\ data "]),
        ("get 'my da", ["'my data' "]),
        ("get sa", ['"say \\"hi\\"" ']),
        ("get it", ['"it\'s" ']),
        ("get new", ["news "]),  # a name with a line break cannot be typed
    ],
)
def test_completed_names_are_quoted(completion: Completion, line: str, found: list[str]) -> None:
    """SVC-1: a quoted name is read back unchanged."""
    typed, spellings = completion(line)
    assert spellings == found
    for each in spellings:
        (name,) = divide(each)
        assert name in TOPICS
        assert name.startswith(unfinished(line)[1].text)
    assert line.endswith(typed)
