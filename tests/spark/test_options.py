"""PIPE-1 PIPE-3: options are parsed once, and what is wrong is named with its remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.errors import BadOption
from oncecast.spark.options import SINK, SOURCE, Option, SinkOptions, SourceOptions

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def source(given: dict[str, str], *, streaming: bool = False) -> SourceOptions:
    lower = {name.lower(): value for name, value in given.items()}  # as Spark gives them
    return SourceOptions.of({"topics": "a", **lower}, streaming=streaming)


def test_defaults_read_all_of_a_topic_from_the_node_of_this_machine() -> None:
    options = source({})
    assert (options.node.address, options.node.tls) == ("127.0.0.1:7400", ())
    assert (options.topics, options.start, options.end) == (("a",), None, None)
    assert options.fail_on_loss


def test_names_of_options_are_not_case_sensitive() -> None:
    assert source({"MAXRECORDSPERPARTITION": "7"}).partition_rows_max == 7


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"startingOffsets": "Earliest"}, EARLIEST),
        ({"startingOffsets": '{"a": 7}'}, {"a": from_offset(7)}),
        ({"startingOffsets": '{"a": -2, "b": -1}'}, {"a": EARLIEST, "b": NEW}),
        ({"startingTimestamp": "1500"}, from_time(1.5)),
    ],
)
def test_where_reading_starts(given: dict[str, str], start: object) -> None:
    assert source(given).start == start


@pytest.mark.parametrize(
    ("given", "streaming", "text"),
    [
        ({"topic": "a"}, False, "option 'topic' is unknown here; the options are address,"),
        ({"topicpattern": "a.*"}, False, "one of the options topics and topicPattern"),
        ({"topics": "a,,b"}, False, "option topics is 'a,,b': it is empty"),
        ({"startingoffsets": "first"}, False, "say earliest, latest, or offsets such as"),
        ({"startingoffsets": '{"a": "7"}'}, False, "say earliest, latest, or offsets such as"),
        ({"startingoffsets": '{"a": -3}'}, False, "offset -3: offsets begin at 0"),
        ({"startingoffsets": "latest"}, False, "a batch would be empty"),
        ({"endingoffsets": "earliest"}, False, "a batch would be empty"),
        ({"startingtimestamp": "yesterday"}, False, "give milliseconds since 1970"),
        ({"startingtimestamp": "1", "startingoffsets": "earliest"}, False, "not both"),
        ({"endingoffsets": "latest"}, True, "option endingOffsets is for a batch query"),
        ({"maxoffsetspertrigger": "9"}, False, "maxOffsetsPerTrigger is for a streaming query"),
        ({"subscription": "s"}, False, "option subscription is for a streaming query"),
        ({"minpartitions": "0"}, False, "option minPartitions is '0': give a whole number"),
        ({"includeheaders": "yes"}, False, "say true or false"),
        ({"tlsca": "ca.pem"}, False, "give all three, or none"),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, str], streaming: bool, text: str) -> None:
    """SVC-7"""
    with pytest.raises(BadOption, match=re.escape(text)):
        source(given, streaming=streaming)


def test_level_of_compression_must_be_one() -> None:
    with pytest.raises(BadOption, match="option zstd is '23': give a level from 1 to 22"):
        SinkOptions.of({"topic": "a", "zstd": "23"})


def test_pattern_must_be_one() -> None:
    with pytest.raises(BadOption, match="no regular expression"):
        SourceOptions.of({"topicpattern": "a("}, streaming=False)


def test_sink_knows_its_own_options_and_leaves_sparks_alone() -> None:
    options = SinkOptions.of({"topic": "a", "zstd": "3", "checkpointlocation": "there"})
    assert (options.topic, options.zstd) == ("a", 3)
    with pytest.raises(BadOption, match="option 'topics' is unknown here"):
        SinkOptions.of({"topics": "a"})


@pytest.mark.parametrize(("options", "heading"), [(SOURCE, "Source"), (SINK, "Sink")])
def test_page_has_all_options_with_their_defaults(options: list[Option], heading: str) -> None:
    page = PAGE.read_text()
    told = page.split(f"## {heading} options", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", told, re.MULTILINE)
    assert rows == [
        (each.name, "" if each.default is None else f"`{each.default}`", each.meaning)
        for each in options
    ]
