"""A client can read a topic as a stream of Arrow batches, without Spark."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import oncecast
from oncecast import Policy, blocking, errors, read_arrow
from oncecast.wire.batch_arrow import SCHEMA


@pytest.fixture
def client(tmp_path: Path) -> Iterator[blocking.Client]:
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", Policy(keep_all=True))
        client.put("t", b"0", key=b"k", headers={"h": b"v"})
        client.put_many("t", [b"%d" % number for number in range(1, 100)])
        yield client


def test_batches_contain_all_messages_and_columns(client: blocking.Client) -> None:
    table = read_arrow("t", client).read_all()
    assert table.schema == SCHEMA
    assert table["value"].to_pylist() == [b"%d" % number for number in range(100)]
    assert table["offset"].to_pylist() == list(range(100))
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["topic"], first["key"], first["headers"]) == ("t", b"k", [("h", b"v")])


def test_offset_range_columns_and_batch_size_can_be_chosen(client: blocking.Client) -> None:
    reader = read_arrow(
        "t", client, start=oncecast.from_offset(5), until=30, columns=["offset", "value"], rows=10
    )
    assert reader.schema.names == ["offset", "value"]
    batches = list(reader)
    assert [len(each) for each in batches] == [10, 10, 5]
    assert [row for each in batches for row in each["offset"].to_pylist()] == list(range(5, 30))


def test_reader_ignores_messages_put_after_the_call(client: blocking.Client) -> None:
    reader = read_arrow("t", client, columns=["offset"])
    client.put("t", b"late")
    assert len(reader.read_all()) == 100


def test_empty_range_has_a_schema_and_no_batches(client: blocking.Client) -> None:
    table = read_arrow("t", client, start=oncecast.NEW).read_all()
    assert (table.schema, len(table)) == (SCHEMA, 0)


def test_following_reader_gets_new_messages_and_ends_at_its_limit(client: blocking.Client) -> None:
    reader = read_arrow("t", client, until=103, columns=["value"], follow=0.01)
    found = reader.read_next_batch()["value"].to_pylist()
    writer = threading.Thread(target=client.put_many, args=("t", [b"a", b"b", b"c", b"d"]))
    writer.start()
    for each in reader:
        found += each["value"].to_pylist()
    writer.join()
    assert found[99:] == [b"99", b"a", b"b", b"c"]


def test_reader_opened_by_address_closes_its_connection(client: blocking.Client) -> None:
    address = client.node_of("t")
    threads = set(threading.enumerate())
    reader = read_arrow("t", address, rows=1)
    assert set(threading.enumerate()) > threads
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert len(read_arrow("t", address).read_all()) == 100
    assert set(threading.enumerate()) == threads
    with pytest.raises(errors.NoSuchTopic):
        read_arrow("nowhere", address)
    assert set(threading.enumerate()) == threads


def test_reading_outside_the_topic_or_a_recreated_topic_raises(client: blocking.Client) -> None:
    with pytest.raises(errors.OutOfRange, match="offset 200 of topic 't'"):
        read_arrow("t", client, until=200).read_all()
    with pytest.raises(errors.OutOfRange, match="offset 200 of topic 't'"):
        read_arrow("t", client, start=oncecast.from_offset(200)).read_all()
    reader = read_arrow("t", client)
    client.delete_topic("t")
    client.create_topic("t", Policy(keep_all=True))
    with pytest.raises(errors.TopicReplaced):
        reader.read_all()


def test_invalid_arguments_are_refused(client: blocking.Client) -> None:
    with pytest.raises(errors.InvalidArgument, match="column 'sum' does not exist; choose from"):
        read_arrow("t", client, columns=["sum"])
    with pytest.raises(errors.InvalidArgument, match="rows is 0"):
        read_arrow("t", client, rows=0)


def test_missing_pyarrow_is_reported_with_the_package_to_install(
    client: blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "oncecast.wire.batch_arrow")
    with pytest.raises(ImportError, match=r'pip install "oncecast\[arrow\]"'):
        read_arrow("t", client)


def test_arrow_c_stream_raises_errors_from_the_node(client: blocking.Client) -> None:
    stream = pa.RecordBatchReader.from_stream(read_arrow("t", client, until=200))
    with pytest.raises(pa.ArrowInvalid, match="offset 200 of topic 't'"):
        stream.read_all()
