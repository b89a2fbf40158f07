"""Test front-end connections: versions, response order and invalid requests (KAF-1)."""

from __future__ import annotations

from random import Random

from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.events import Disconnected, Received
from oncecast.kafka.layout import codec
from oncecast.kafka.messages import APIS, BY_KEY
from tests.kafka.bodies import random_body, request_bytes
from tests.kafka.front_desk import desk, no_topics

VERSIONS = BY_KEY[18]


def test_offered_versions_are_listed() -> None:
    """KAF-1: clients choose their versions from this list."""
    front = desk()
    front.send(m.ApiVersionsRequest())
    reply = front.reply()
    assert reply.error_code == 0
    assert [(each.api_key, each.min_version, each.max_version) for each in reply.api_keys] == [
        (api.key, api.first, api.last) for api in APIS
    ]


def test_client_with_an_unknown_version_is_answered_in_the_oldest_one() -> None:
    """KAF-1: the client then retries with a version that both sides know."""
    front = desk()
    front.apis[1, 7] = VERSIONS, 0
    front.send_raw(b"\x00\x12\x00\x04\x00\x00\x00\x07\x00\x02me\x00\x05rdkafka")
    assert front.reply().error_code == Code.UNSUPPORTED_VERSION


def test_unknown_request_or_version_closes_the_connection() -> None:
    for head in (b"\x03\xe7\x00\x00", b"\x00\x00\x00\x63", b"\x00\x00\x00\x00"):
        front = desk()
        front.send_raw(head + b"\x00\x00\x00\x01\xff\xff")
        assert front.hung_up == [1]
        assert not front.replies


def test_bytes_after_a_request_close_the_connection() -> None:
    front = desk()
    front.send_raw(request_bytes(VERSIONS, 0, m.ApiVersionsRequest()) + b"x")
    assert front.hung_up == [1]


def test_requests_after_an_invalid_one_are_ignored() -> None:
    front = desk()
    front.send_raw(b"nonsense")
    front.send_raw(request_bytes(VERSIONS, 0, m.ApiVersionsRequest()))
    assert (front.hung_up, front.replies) == ([1], [])


def test_connections_get_their_own_responses() -> None:
    front = desk()
    front.connect(2)
    topic = (m.MetadataTopic(name="t"),)
    front.send(m.MetadataRequest(topics=topic, allow_auto_topic_creation=False))
    second = front.send(m.FindCoordinatorRequest(key="g"), connection=2)
    assert [each[:2] for each in front.replies] == [(2, second)]


def test_response_to_a_disconnected_client_is_dropped() -> None:
    front = desk()
    topic = (m.MetadataTopic(name="t"),)
    front.send(m.MetadataRequest(topics=topic, allow_auto_topic_creation=False))
    front.front.request(Disconnected(1))
    front.answer(no_topics())
    assert not front.replies
    front.front.request(Received(1, b"late"))
    assert front.front.drain() == []


def test_every_offered_request_has_a_handler() -> None:
    """KAF-1: a valid request of any version is answered or waits for the session."""
    for api in APIS:
        for version in range(api.first, api.last + 1):
            for seed in range(3):
                front = desk()
                body = random_body(api.request, version, Random(seed))
                if isinstance(body, m.ProduceRequest) and body.acks == 0:
                    body.acks = 1  # a refused batch with acks=0 ends the connection
                front.send(body, version=version)
                assert not front.hung_up, (api, version, seed)
                assert front.replies or front.asked or front.timers or api.key == 0


def test_mutated_requests_never_raise() -> None:
    """KAF-1: each is answered, forwarded, or closes the connection."""
    rng = Random(5)
    for number in range(1000):
        api = rng.choice(APIS)
        version = rng.randint(api.first, api.last)
        data = bytearray(request_bytes(api, version, random_body(api.request, version, rng)))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(8, len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        front = desk()
        front.apis[1, 7] = api, version
        front.send_raw(bytes(data[: rng.randint(8, len(data))] if number % 2 else data))


def test_codec_is_built_once() -> None:
    assert codec(m.FetchRequest, 11, False) is codec(m.FetchRequest, 11, False)
