"""PIPE-1 PIPE-3: options are parsed once, and errors name the option and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecast import Policy
from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.errors import BadOption
from oncecast.spark.options import KAFKA, SINK, Option, SinkOptions
from oncecast.spark.source_options import SOURCE, SourceOptions

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def source(given: dict[str, str], *, streaming: bool = False) -> SourceOptions:
    # Spark passes names in lower case.
    lower = {name.lower(): value for name, value in given.items()}
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
def test_starting_options_set_the_position_where_reading_starts(
    given: dict[str, str], start: object
) -> None:
    assert source(given).start == start


@pytest.mark.parametrize(
    ("given", "streaming", "text"),
    [
        ({"name": "a"}, False, "unknown option 'name'; choose from address,"),
        ({"topic": "a"}, False, "option 'topic' has the same meaning as another option"),
        ({"topicpattern": "a.*"}, False, "one of the options topics and topicPattern"),
        ({"topics": "a,,b"}, False, "option topics is 'a,,b': the value is empty"),
        ({"startingoffsets": "first"}, False, "use earliest, latest, or offsets such as"),
        ({"startingoffsets": '{"a": "7"}'}, False, "use earliest, latest, or offsets such as"),
        ({"startingoffsets": '{"a": -3}'}, False, "offset -3 is too low (minimum 0"),
        ({"startingoffsets": "latest"}, False, "so the batch would be empty"),
        ({"endingoffsets": "earliest"}, False, "so the batch would be empty"),
        ({"startingtimestamp": "yesterday"}, False, "use milliseconds since 1970"),
        ({"startingoffsets": '{"a": {"1": "7"}}'}, False, "use earliest, latest, or offsets"),
        ({"startingoffsetsbytimestamp": "7"}, False, 'since 1970, such as {"topic": 17'),
        (
            {"timestamptype": "message", "startingoffsetsbytimestamp": '{"a": 7}'},
            False,
            "use startingTimestamp and endingTimestamp",
        ),
        ({"maxtriggerdelay": "15"}, True, "use a number with a unit: ms, s, m, h or d"),
        ({"columns": "value,life"}, False, "column 'life' does not exist"),
        ({"provider": "oncecast"}, False, "use CREATE TEMPORARY VIEW name USING oncecast"),
        (
            {"startingtimestamp": "1", "startingoffsets": "earliest"},
            False,
            "set only one of the options",
        ),
        (
            {"endingoffsets": "latest"},
            True,
            "option endingOffsets is allowed only in a batch query",
        ),
        (
            {"maxoffsetspertrigger": "9"},
            False,
            "maxOffsetsPerTrigger is allowed only in a streaming query",
        ),
        ({"subscription": "s"}, False, "option subscription is allowed only in a streaming query"),
        (
            {"minpartitions": "0"},
            False,
            "option minPartitions is '0'; use an integer of at least 1",
        ),
        ({"failondataloss": "yes"}, False, "use true or false"),
        ({"includeheaders": "yes"}, False, "use false or true or array"),
        ({"tlscert": "client.pem"}, False, "set tlsCa alone, all three, or none"),
        ({"user": "ann"}, False, "user and password must be set together"),
    ],
)
def test_invalid_option_is_rejected(given: dict[str, str], streaming: bool, text: str) -> None:
    """SVC-7"""
    with pytest.raises(BadOption, match=re.escape(text)):
        source(given, streaming=streaming)


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("kafka.bootstrap.servers", "set option address to an oncecast node"),
        ("assign", "use option topics"),
        ("groupidprefix", "use option subscription"),
        ("kafka.sasl.mechanism", "it configures a Kafka client; use address, tlsCa, user"),
    ],
)
def test_kafka_connector_option_is_rejected_with_a_remedy(key: str, remedy: str) -> None:
    """SVC-7"""
    with pytest.raises(BadOption, match=re.escape(f"unknown option {key!r}; {remedy}")):
        source({key: "x"})


def test_equivalent_kafka_connector_options_are_accepted() -> None:
    found = SourceOptions.of(
        {"subscribe": "a,b", "startingoffsets": '{"a": {"0": 7}, "b": {"0": -1}}'}, streaming=True
    )
    assert (found.topics, found.start) == (("a", "b"), {"a": from_offset(7), "b": NEW})
    found = SourceOptions.of({"subscribepattern": "a.*", "maxtriggerdelay": "2m"}, streaming=True)
    assert (found.pattern, found.delay_max) == ("a.*", 120)


def test_spark_page_lists_all_kafka_connector_options() -> None:
    page = PAGE.read_text().split("## Coming from Kafka", 1)[1].split("\n## ", 1)[0].lower()
    assert [
        key for key in (*KAFKA, "subscribe", "subscribepattern") if f"`{key}`" not in page
    ] == []


def test_compression_level_out_of_range_is_rejected() -> None:
    with pytest.raises(BadOption, match="option zstd is '23'; use a level from 1 to 22"):
        SinkOptions.of({"topic": "a", "zstd": "23"}, streaming=False)


def test_invalid_pattern_is_rejected() -> None:
    with pytest.raises(BadOption, match="not a regular expression"):
        SourceOptions.of({"topicpattern": "a("}, streaming=False)


def test_sink_rejects_source_options_and_ignores_spark_options() -> None:
    given = {"topic": "a", "zstd": "3", "checkpointlocation": "there"}
    options = SinkOptions.of(given, streaming=True)
    assert (options.topic, options.zstd) == ("a", 3)
    with pytest.raises(BadOption, match="unknown option 'topics'"):
        SinkOptions.of({"topics": "a"}, streaming=True)


@pytest.mark.parametrize(("options", "heading"), [(SOURCE, "Source"), (SINK, "Sink")])
def test_spark_page_lists_all_options_with_their_defaults(
    options: list[Option], heading: str
) -> None:
    page = PAGE.read_text()
    section = page.split(f"## {heading} options", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section, re.MULTILINE)
    assert rows == [
        (each.name, "" if each.default is None else f"`{each.default}`", each.meaning)
        for each in options
    ]


@pytest.mark.parametrize(
    ("given", "streaming", "text"),
    [
        ({"txnappid": "a"}, False, "set both txnAppId and txnVersion"),
        ({"txnversion": "1"}, False, "set both txnAppId and txnVersion"),
        ({"txnappid": "a", "txnversion": "-1"}, False, "use an integer of at least 0"),
        ({"txnversion": "1"}, True, "option txnVersion is allowed only in batch writes"),
        ({"topicpolicy": "long"}, False, "use all, or an age such as 90s, 12h or 7d"),
        ({"replay": "no"}, True, "use check or skip"),
    ],
)
def test_invalid_sink_option_is_rejected(given: dict[str, str], streaming: bool, text: str) -> None:
    """SVC-7"""
    with pytest.raises(BadOption, match=re.escape(text)):
        SinkOptions.of({"topic": "a", **given}, streaming=streaming)


def test_topic_policy_option_accepts_all_or_an_age() -> None:
    assert SinkOptions.of({"topic": "a"}, streaming=False).policy == Policy(keep_all=True)
    aged = SinkOptions.of({"topic": "a", "topicpolicy": "2h"}, streaming=False)
    assert aged.policy == Policy(age_us=7_200_000_000)
