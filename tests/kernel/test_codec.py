"""A codec decodes only its own types."""

from __future__ import annotations

import types

import pytest

from oncecast.errors import Malformed, NetworkError
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value


class Ping(Value):
    hops: int


class Parcel(Value):
    to: NodeId
    content: bytes
    labels: dict[str, list[int]]
    inner: Parcel | None = None


class Stranger(Value):
    hops: int


CODEC = Codec((Ping, Parcel))


def test_decoded_value_equals_the_encoded_value() -> None:
    for value in (
        Ping(3),
        Parcel(NodeId("a:1"), b"\x00\xff", {"x": [1]}, Parcel(NodeId("b:1"), b"", {})),
    ):
        assert CODEC.decode(CODEC.encode(value)) == value


def test_decoded_value_survives_buffer_reuse() -> None:
    buffer = bytearray(CODEC.encode(Parcel(NodeId("a:1"), b"content", {})))
    value = CODEC.decode(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert value == Parcel(NodeId("a:1"), b"content", {})


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        b"\xc1",
        b"\x92\xa8Stranger\x01",
        b"\x92\xa4Ping\xa1x",
        b"\x91\xa4Ping",
        CODEC.encode(Ping(1)) + b"\x00",
        b"\x92\xa4Ping\xdd\xff\xff\xff\xff",
        b"\x94\xa6Parcel\xa1a\xc6\xff\xff\xff\xff",
        b"\x94\xa6Parcel\xa2\xff\xff\xc4\x00\x80",
        b"\x93\xa4Ping\x01" + b"\x91" * 100_000,
        b"\x94\xa6Parcel\xa1a\xc4\x00\x81\x90\x90",
    ],
    ids=[
        "nothing",
        "no MessagePack",
        "a type from another codec",
        "text for a number",
        "one field too few",
        "one byte too many",
        "an array of four billion items",
        "missing bytes",
        "text that is not UTF-8",
        "deep nesting",
        "a key that is a list",
    ],
)
def test_arbitrary_bytes_raise_only_malformed(bytes_: bytes) -> None:
    with pytest.raises(Malformed):
        CODEC.decode(bytes_)


def test_malformed_is_a_network_error() -> None:
    assert issubclass(Malformed, NetworkError)


def test_codec_rejects_two_types_with_the_same_tag() -> None:
    other = types.new_class("Ping", (Value,), {}, lambda body: body.update(__module__="elsewhere"))
    with pytest.raises(
        TypeError, match=r"test_codec\.Ping and elsewhere\.Ping .* 'Ping'; change one of them"
    ):
        Codec((Ping, other))


def test_codec_accepts_a_type_listed_twice() -> None:
    assert Codec((Ping, Ping)).decode(b"\x92\xa4Ping\x01") == Ping(1)


def test_codec_without_types_decodes_nothing() -> None:
    with pytest.raises(Malformed):
        Codec(()).decode(b"\x92\xa4Ping\x01")
