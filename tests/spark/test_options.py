"""PIPE-1 PIPE-3: options are parsed once, and errors name the option and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.errors import BadOption
from oncecast.spark.options import SINK, SOURCE, Option, SinkOptions, SourceOptions

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def source(given: dict[str, str], *, streaming: bool = False) -> SourceOptions:
    lower = {name.lower(): value for name, value in given.items()}  # as Spark passes them
    return SourceOptions.of({"topics": "a", **lower}, streaming=streaming)


def test_defaults_read_a_whole_topic_from_the_local_node() -> None:
    options = source({})
    assert (options.node.address, options.node.tls) == ("127.0.0.1:7400", ())
    assert (options.topics, options.start, options.end) == (("a",), None, None)
    assert options.fail_on_loss


def test_option_names_are_not_case_sensitive() -> None:
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
        ({"topic": "a"}, False, "unknown option 'topic'; choose from address,"),
        ({"topicpattern": "a.*"}, False, "one of the options topics and topicPattern"),
        ({"topics": "a,,b"}, False, "option topics is 'a,,b': the value is empty"),
        ({"startingoffsets": "first"}, False, "use earliest, latest, or offsets such as"),
        ({"startingoffsets": '{"a": "7"}'}, False, "use earliest, latest, or offsets such as"),
        ({"startingoffsets": '{"a": -3}'}, False, "offset -3 is too low (minimum 0"),
        ({"startingoffsets": "latest"}, False, "which makes a batch empty"),
        ({"endingoffsets": "earliest"}, False, "which makes a batch empty"),
        ({"startingtimestamp": "yesterday"}, False, "use milliseconds since 1970"),
        (
            {"startingtimestamp": "1", "startingoffsets": "earliest"},
            False,
            "set only one of the options",
        ),
        (
            {"endingoffsets": "latest"},
            True,
            "option endingOffsets is only allowed in a batch query",
        ),
        (
            {"maxoffsetspertrigger": "9"},
            False,
            "maxOffsetsPerTrigger is only allowed in a streaming query",
        ),
        ({"subscription": "s"}, False, "option subscription is only allowed in a streaming query"),
        (
            {"minpartitions": "0"},
            False,
            "option minPartitions is '0': use an integer of at least 1",
        ),
        ({"includeheaders": "yes"}, False, "use true or false"),
        ({"tlscert": "client.pem"}, False, "set tlsCa alone, or all three, or none"),
        ({"user": "ann"}, False, "user and password belong together"),
    ],
)
def test_invalid_option_is_rejected(given: dict[str, str], streaming: bool, text: str) -> None:
    """SVC-7"""
    with pytest.raises(BadOption, match=re.escape(text)):
        source(given, streaming=streaming)


def test_compression_level_out_of_range_is_rejected() -> None:
    with pytest.raises(BadOption, match="option zstd is '23': use a level from 1 to 22"):
        SinkOptions.of({"topic": "a", "zstd": "23"})


def test_invalid_pattern_is_rejected() -> None:
    with pytest.raises(BadOption, match="not a regular expression"):
        SourceOptions.of({"topicpattern": "a("}, streaming=False)


def test_sink_rejects_options_of_the_source_and_ignores_those_of_spark() -> None:
    options = SinkOptions.of({"topic": "a", "zstd": "3", "checkpointlocation": "there"})
    assert (options.topic, options.zstd) == ("a", 3)
    with pytest.raises(BadOption, match="unknown option 'topics'"):
        SinkOptions.of({"topics": "a"})


@pytest.mark.parametrize(("options", "heading"), [(SOURCE, "Source"), (SINK, "Sink")])
def test_page_has_all_options_with_their_defaults(options: list[Option], heading: str) -> None:
    page = PAGE.read_text()
    section = page.split(f"## {heading} options", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section, re.MULTILINE)
    assert rows == [
        (each.name, "" if each.default is None else f"`{each.default}`", each.meaning)
        for each in options
    ]
