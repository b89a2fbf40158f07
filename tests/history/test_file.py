"""History files stay readable wherever their process was killed."""

from __future__ import annotations

import io
import json

import pytest

from oncecast.errors import BadHistory
from oncecast.history import History, Recorder
from oncecast.history.file import Writer, merged, read, write
from oncecast.history.operation import digests_of_values
from tests.history.machine_play import Play


def lines_of(history: History) -> list[bytes]:
    file = io.BytesIO()
    write(history, file)
    return file.getvalue().splitlines(keepends=True)


def test_history_is_read_as_it_was_written() -> None:
    history = [each for seed in range(5) for each in Play(seed).run(300)]
    assert read(lines_of(history)) == history


def test_recorder_writes_the_history_that_it_would_keep_in_memory() -> None:
    file = io.BytesIO()
    Play(3, sink=Writer(file)).run(400)
    written = read(file.getvalue().splitlines(keepends=True))
    assert merged([written]) == merged([Play(3).run(400)])


def test_killed_process_leaves_calls_without_answers() -> None:
    """SVC-2: a put that was sent counts, with or without a recorded answer."""
    file = io.BytesIO()
    recorder = Recorder(lambda: 1.0, Writer(file))
    put = recorder.call("ann", "put", "news", digests=digests_of_values([b"x"]))
    before = len(file.getvalue())
    recorder.returned(put, offset=7)
    data = file.getvalue()
    for end in range(before, len(data)):
        (found,) = read(data[:end].splitlines(keepends=True))
        assert found.returned is None
        assert found.offset == -1
    (found,) = read(data.splitlines(keepends=True))
    assert (found.offset, found.done) == (7, True)


def test_topic_id_is_stored_under_the_same_key_as_in_earlier_versions() -> None:
    file = io.BytesIO()
    recorder = Recorder(lambda: 1.0, Writer(file))
    recorder.said("ann", "ack", "news", topic_id=1)
    recorder.returned(recorder.call("ann", "look", "news", topic_id=2), topic_id=3)
    lines = file.getvalue().splitlines(keepends=True)
    assert [json.loads(each).get("life") for each in lines] == [None, 1, 2, 3]
    assert [each.topic_id for each in read(lines)] == [1, 3]


def test_recorder_times_are_unique() -> None:
    recorder = Recorder(lambda: 1.0)
    for _ in range(3):
        recorder.returned(recorder.call("ann", "look", "news"))
    times = [time for each in recorder.history for time in (each.call, each.returned)]
    assert times == sorted(set(times))  # type: ignore[type-var]


PUT = b'{"oncecast-history":1}\n{"client":"ann","kind":"put","topic":"news","call":2.5'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{}\n", "not a history; its first line must contain the key 'oncecast-history'"),
        (b"hello\n", "line 1: not a JSON object"),
        (b'{"oncecast-history":2}\n', "history format 2 (this version reads 1)"),
        (b'{"oncecast-history":1}\n{"client":"ann"}\n', "line 2: .*missing required field"),
        (b'{"oncecast-history":1}\n{"id":5,"offset":2}\n', "line 2: answers call 5, which"),
        (
            PUT + b',"returned":1.5}\n',
            r"line 2: the operation returned at 1\.5 s, before its call at 2\.5 s",
        ),
        (
            PUT + b',"digests":"gvoc"}\n',
            "line 2: the digests are 3 bytes long, which is not a multiple of 4",
        ),
        (b'{"oncecast-history":1}\n[1]\n', "line 2: not a JSON object"),
    ],
)
def test_file_that_is_not_a_history_is_rejected(text: bytes, complaint: str) -> None:
    with pytest.raises(BadHistory, match=complaint.replace("(", r"\(").replace(")", r"\)")):
        read(text.splitlines(keepends=True), "file")


def test_empty_file_has_no_operations() -> None:
    assert read([]) == []


def recorded(earlier: bytes, topic: str) -> bytes:
    """Append the recording of a process with one put to `earlier`."""
    file = io.BytesIO(earlier)
    file.seek(0, io.SEEK_END)
    recorder = Recorder(lambda: 1.0, Writer(file))
    recorder.returned(recorder.call("ann", "put", topic), offset=7)
    return file.getvalue()


def test_restarted_process_appends_to_its_file() -> None:
    """SVC-2: the parts stay separate wherever the earlier process was killed."""
    first = recorded(b"", "one")
    for end in range(len(first) + 1):
        both = read(recorded(first[:end], "two").splitlines(keepends=True))
        whole = first[: end + 1] if first[end : end + 1] == b"\n" else first[:end]
        assert both[:-1] == read(whole.splitlines(keepends=True))
        assert (both[-1].topic, both[-1].done) == ("two", True)


def test_damaged_line_in_the_middle_is_rejected() -> None:
    lines = [*recorded(b"", "one").splitlines(keepends=True), b"hello\n", b"{}\n"]
    with pytest.raises(BadHistory, match="line 4: not a JSON object"):
        read(lines)
