"""Test the Kafka wire format against kio, an independent implementation (KAF-1)."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from random import Random

import pytest
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue

from oncecast.errors import Malformed
from oncecast.kafka.layout import codec
from oncecast.kafka.messages import APIS, Api, MetadataRequest
from tests.kafka.bodies import encoded, random_body

SEEDS = range(40)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.request.__name__)
def test_messages_match_an_independent_implementation(api: Api) -> None:
    """KAF-1: kio reads every message that we write, and writes the same bytes."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", api.request.__name__.removesuffix("Request")).lower()
    for version in range(api.first, api.last + 1):
        flexible = version >= api.flexible
        for kind, module in ((api.request, "request"), (api.response, "response")):
            theirs = importlib.import_module(f"kio.schema.{name}.v{version}.{module}")
            other = getattr(theirs, kind.__name__)
            compared = 0
            for seed in SEEDS:
                body = random_body(kind, version, Random(seed))
                data = encoded(body, version, flexible=flexible)
                assert codec(kind, version, flexible).read(data, 0) == (body, len(data))
                try:
                    entity, end = entity_reader(other)(data, 0)
                except (OutOfBoundValue, OverflowError, ValueError):
                    continue  # kio accepts only known error codes and times within its range
                out = io.BytesIO()
                entity_writer(other)(out, entity)
                assert (out.getvalue(), end) == (data, len(data))
                compared += 1
            assert compared >= 3


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.request.__name__)
def test_damaged_request_is_malformed_or_valid(api: Api) -> None:
    """KAF-1: invalid bytes raise no error other than Malformed."""
    rng = Random(api.key)
    for version in range(api.first, api.last + 1):
        flexible = version >= api.flexible
        read = codec(api.request, version, flexible).read
        for seed in range(5):
            body = random_body(api.request, version, Random(seed))
            data = encoded(body, version, flexible=flexible)
            for end in range(len(data)):
                with pytest.raises(Malformed):
                    read(data[:end], 0)
            for _ in range(50):
                changed = bytearray(data or b"\0")
                for _ in range(rng.randint(1, 4)):
                    changed[rng.randrange(len(changed))] = rng.choice((0, 0x7F, 0x80, 0xFF))
                with contextlib.suppress(Malformed):
                    read(bytes(changed), 0)


def test_array_length_is_checked_before_its_elements_are_read() -> None:
    """KAF-1: a length field alone must not allocate memory."""
    data = (2**31 - 1).to_bytes(4, "big") + b"\x00\x01a"
    with pytest.raises(Malformed, match="2147483647 bytes are declared, but only 3 bytes"):
        codec(MetadataRequest, 1, False).read(data, 0)


def test_negative_length_and_invalid_utf_8_are_malformed() -> None:
    read = codec(MetadataRequest, 1, False).read
    one = (1).to_bytes(4, "big")
    with pytest.raises(Malformed, match="the length -1 is not allowed"):
        read(one + b"\xff\xff", 0)
    with pytest.raises(Malformed, match="not valid UTF-8"):
        read(one + b"\x00\x01\xff", 0)
    with pytest.raises(Malformed, match="the array length -2"):
        read(b"\xff\xff\xff\xfe", 0)
