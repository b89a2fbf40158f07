"""Test where Kafka clients find the nodes of a group (KAF-3)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.broker.broker_viewer import (
    EXPIRES_AFTER,
    TELL_EVERY,
    BrokerViewer,
    ServesKafka,
    TellAddress,
)
from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.wire.errors import NotHere
from oncecast.wire.frames import Answer, BrokerView, Elsewhere, LookBroker

ME, ANN, BOB, CLIENT = map(NodeId, ("me", "ann", "bob", "client"))


class Service:
    """The part of the service that the viewer uses."""

    def __init__(self) -> None:
        self.leading, self.leader = True, ME
        self.group = self.machine = self.registry = self
        self.moved = ""

    def nodes(self) -> tuple[NodeId, ...]:
        return (ME, ANN, BOB)

    def elsewhere(self, topic: str) -> NotHere | None:
        return NotHere("") if topic == self.moved else None


def viewer(kafka: str | None = "127.0.0.1:9092") -> tuple[BrokerViewer, Service]:
    service: Any = Service()
    listening = None if kafka is None else lambda: kafka
    return BrokerViewer(ME, Random(1), service=service, kafka=listening), service


def test_node_tells_its_address_to_the_other_members() -> None:
    """KAF-3"""
    brokers, _ = viewer()
    brokers.start()
    assert brokers.drain() == [Later(0.0, TellAddress())]
    brokers.timeout(TellAddress())
    mine = ServesKafka("127.0.0.1:9092")
    assert brokers.drain() == [
        Send(ANN, mine, after=0),
        Send(BOB, mine, after=0),
        Later(TELL_EVERY, TellAddress()),
    ]


def test_node_whose_listener_is_closed_tells_nothing_yet() -> None:
    brokers, _ = viewer("")
    brokers.timeout(TellAddress())
    assert brokers.drain() == [Later(TELL_EVERY, TellAddress())]


def test_node_without_kafka_clients_sets_no_timer() -> None:
    brokers, _ = viewer(None)
    brokers.start()
    assert brokers.drain() == []
    brokers.receive(CLIENT, LookBroker(1, "t"))
    assert brokers.drain() == [Send(CLIENT, BrokerView(1, ME, ()))]


def test_leader_names_itself_first_and_then_the_members_that_serve_kafka_clients() -> None:
    """KAF-3"""
    brokers, _ = viewer()
    brokers.receive(BOB, ServesKafka("127.0.0.1:9094"))
    brokers.receive(CLIENT, LookBroker(1, "t"))
    known = ((ME, "127.0.0.1:9092"), (BOB, "127.0.0.1:9094"))
    assert brokers.drain() == [Send(CLIENT, BrokerView(1, ME, known))]


def test_address_of_a_silent_member_expires() -> None:
    brokers, _ = viewer()
    brokers.receive(BOB, ServesKafka("127.0.0.1:9094"))
    brokers.now = EXPIRES_AFTER
    brokers.receive(CLIENT, LookBroker(1, "t"))
    assert brokers.drain() == [Send(CLIENT, BrokerView(1, ME, ((ME, "127.0.0.1:9092"),)))]


@pytest.mark.parametrize(("sender", "address"), [(CLIENT, "127.0.0.1:1"), (BOB, "x" * 301)])
def test_address_of_a_stranger_or_a_long_one_is_ignored(sender: NodeId, address: str) -> None:
    """SEC-1"""
    brokers, _ = viewer("")
    brokers.receive(sender, ServesKafka(address))
    brokers.receive(CLIENT, LookBroker(1, "t"))
    assert brokers.drain() == [Send(CLIENT, BrokerView(1, ME, ()))]


def test_follower_names_the_leader_instead() -> None:
    """KAF-3"""
    brokers, service = viewer()
    service.leading, service.leader = False, ANN
    brokers.receive(CLIENT, LookBroker(1, "t"))
    assert brokers.drain() == [Send(CLIENT, Elsewhere(ANN, (ME, ANN, BOB)))]


def test_topic_that_has_moved_to_another_group_is_not_here() -> None:
    """KAF-3"""
    brokers, service = viewer()
    service.moved = "t"
    brokers.receive(CLIENT, LookBroker(1, "t"))
    assert brokers.drain() == [Send(CLIENT, Answer(1, NotHere("")))]
    brokers.receive(CLIENT, LookBroker(2, ""))
    assert brokers.drain() == [Send(CLIENT, BrokerView(2, ME, ((ME, "127.0.0.1:9092"),)))]
