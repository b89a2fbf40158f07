"""Test that Kafka clients are led to the node that leads a topic or coordinates a group (KAF-3)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.brokers import FORGET_AFTER, broker_id
from oncecast.kafka.coordinators import OF_GROUP, OF_TRANSACTION, name_of, refusal
from oncecast.kafka.errors import Code
from oncecast.wire.frames import ArcView, BrokerView, RingView, TopicView, View
from oncecast.wire.retention import Policy
from tests.kafka.front_desk import FrontDesk, desk

ME, ANN, BOB = "127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"
KAFKA = {ME: "127.0.0.1:9092", ANN: "127.0.0.1:9093", BOB: "127.0.0.1:9094"}


def broker(process: str) -> m.MetadataBroker:
    host, _, port = KAFKA[process].partition(":")
    return m.MetadataBroker(node_id=broker_id(process), host=host, port=int(port))


def seen(leader: str, *nodes: str) -> BrokerView:
    return BrokerView(0, leader, tuple((node, KAFKA[node]) for node in nodes))


class Node(FrontDesk):
    """A front end in the process of a node. `route` is where its requests go."""

    def __init__(self) -> None:
        self.route = ME
        super().__init__(process=ME, node_of=lambda topic: self.route)
        self.connect()

    def metadata(self, leader: str, *nodes: str) -> m.MetadataResponse:
        """Ask for the topic `t`, which `leader` leads. Return the response."""
        self.send(m.MetadataRequest(topics=(m.MetadataTopic(name="t"),)))
        self.answer(View(0, (TopicView("t", 1, 0, 0, 0, Policy(), (), 0),), False, leader, "0"))
        assert isinstance(self.asked[0], local.ShowBroker)
        self.answer(seen(leader, *nodes))
        response: m.MetadataResponse = self.reply()
        return response


def test_metadata_names_the_leader_and_all_nodes_of_the_group() -> None:
    """KAF-3"""
    response = Node().metadata(ANN, ANN, ME, BOB)
    assert response.brokers == (broker(ME), broker(ANN), broker(BOB))
    (partition,) = response.topics[0].partitions
    assert partition.leader_id == broker_id(ANN)
    assert (partition.replica_nodes, partition.isr_nodes) == ((broker_id(ANN),),) * 2


def test_id_of_a_node_depends_only_on_its_address() -> None:
    assert broker_id(ME) == broker_id("127.0.0.1:7400") != broker_id(ANN)
    assert 0 <= broker_id(ME) < 1 << 31


def test_replica_of_a_ring_has_the_id_of_its_process() -> None:
    node = Node()
    node.send(m.FindCoordinatorRequest(key="g"))
    node.answer(BrokerView(0, f"{ANN}/g-1", ((f"{ANN}/g-1", KAFKA[ANN]),)))
    assert node.reply().node_id == broker_id(ANN)


def test_leader_that_serves_no_kafka_clients_is_replaced_by_the_front_end() -> None:
    """KAF-3"""
    response = Node().metadata(ANN, ME)
    assert response.topics[0].partitions[0].leader_id == broker_id(ME)


def test_topic_whose_owner_does_not_answer_has_no_leader_yet() -> None:
    node = Node()
    node.send(m.MetadataRequest(topics=(m.MetadataTopic(name="t"),)))
    node.answer(View(0, (TopicView("t", 1, 0, 0, 0, Policy(), (), 0),), False, ME, "0"))
    node.answer(local.NoAnswer(1.0))
    (partition,) = node.reply().topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (Code.LEADER_NOT_AVAILABLE, -1)


def test_broker_that_no_node_has_named_for_long_is_forgotten() -> None:
    node = Node()
    node.metadata(ANN, ANN, ME)
    node.wait(FORGET_AFTER + 1)
    assert [each.node_id for each in node.metadata(ME, ME).brokers] == [broker_id(ME)]


def requests() -> list[Any]:
    fetch = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    put = m.ProducePartition(index=0, records=b"")
    offsets = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return [
        m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=(topic("t", fetch),)),
        m.ProduceRequest(
            acks=1, timeout_ms=1, topics=(m.ProduceTopic(name="t", partitions=(put,)),)
        ),
        m.ListOffsetsRequest(topics=(m.ListOffsetsTopic(name="t", partitions=(offsets,)),)),
    ]


def topic(name: str, partition: m.FetchPartition) -> m.FetchTopic:
    return m.FetchTopic(topic=name, partitions=(partition,))


def code_in(response: Any) -> int:
    topics = response.responses if isinstance(response, m.FetchResponse) else response.topics
    code: int = topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("number", range(3))
def test_request_about_a_topic_of_another_leader_is_refused(number: int) -> None:
    """KAF-3: the client asks for metadata and connects to the leader."""
    node = Node()
    node.metadata(ANN, ANN, ME)
    node.route = ANN
    node.send(requests()[number])
    assert code_in(node.reply()) == Code.NOT_LEADER_OR_FOLLOWER
    assert node.asked == []


@pytest.mark.parametrize("number", [0, 2])
def test_request_is_served_while_the_leader_may_have_changed(number: int) -> None:
    """KAF-3: any front end can serve any topic, so a client never waits for an agreement."""
    node = Node()
    node.metadata(ANN, ANN, ME)
    node.route = BOB  # The session follows another leader than the one that is known.
    node.send(requests()[number])
    look, scan = node.asked
    assert isinstance(look, local.ShowBroker)
    assert isinstance(scan, local.Survey)
    node.answer(seen(BOB, BOB, ME), look)
    node.connect(2)
    node.send(requests()[number], connection=2)
    assert code_in(node.reply()) == Code.NOT_LEADER_OR_FOLLOWER


def test_front_end_in_a_process_of_its_own_names_itself_without_a_question() -> None:
    front = desk()
    front.send(m.FindCoordinatorRequest(key="g"))
    assert front.reply().port == 9092
    assert front.asked == []


def test_coordinator_is_the_leader_of_the_topic_with_the_name_of_the_group() -> None:
    """KAF-3"""
    node = Node()
    node.send(m.FindCoordinatorRequest(key="billing"))
    assert node.asked[0].topic == "billing"
    node.answer(seen(BOB, BOB, ME))
    response = node.reply()
    assert (response.node_id, response.port) == (broker_id(BOB), 9094)
    node.send(m.FindCoordinatorRequest(key="other"))
    node.answer(local.NoAnswer(1.0))
    assert node.reply().error_code == Code.COORDINATOR_NOT_AVAILABLE


def examples() -> list[Any]:
    offsets = (m.CommitTopic(name="t", partitions=()),)
    facts: dict[str, Any] = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
    return [
        m.JoinGroupRequest(
            group_id="x", session_timeout_ms=1, member_id="", protocol_type="", protocols=()
        ),
        m.SyncGroupRequest(group_id="x", generation_id=1, member_id="", assignments=()),
        m.HeartbeatRequest(group_id="x", generation_id=1, member_id=""),
        m.LeaveGroupRequest(group_id="x"),
        m.OffsetCommitRequest(group_id="x", generation_id=1, member_id="", topics=offsets),
        m.OffsetFetchRequest(group_id="x", topics=()),
        m.TxnOffsetCommitRequest(**facts, group_id="x", topics=()),
        m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1),
        m.AddPartitionsToTxnRequest(**facts, topics=()),
        m.AddOffsetsToTxnRequest(**facts, group_id="g"),
        m.EndTxnRequest(**facts, committed=True),
        m.DescribeGroupsRequest(groups=("x",)),
        m.DeleteGroupsRequest(groups_names=("x",)),
    ]


@pytest.mark.parametrize("request_", examples(), ids=lambda each: type(each).__name__)
def test_request_for_another_coordinator_is_refused(request_: Any) -> None:
    """KAF-3"""
    assert name_of(request_) == "x"
    node = Node()
    node.route = ANN
    node.send(request_)
    node.answer(seen(ANN, ANN, ME))
    assert node.reply() == refusal(request_, Code.NOT_COORDINATOR)
    assert node.asked == []


def test_every_request_about_a_group_or_transaction_has_an_example() -> None:
    lists = (m.DescribeGroupsRequest, m.DeleteGroupsRequest)
    assert {type(each) for each in examples()} == {*OF_GROUP, *OF_TRANSACTION, *lists}


def test_heartbeat_is_served_without_another_question_at_the_coordinator() -> None:
    node = Node()
    beat = m.HeartbeatRequest(group_id="x", generation_id=1, member_id="")
    for _ in range(2):
        node.send(beat)
        if node.asked:
            node.answer(seen(ME, ME))
        assert node.reply().error_code == Code.UNKNOWN_MEMBER_ID


def test_transaction_refuses_offsets_of_a_group_with_another_coordinator() -> None:
    """KAF-2: the coordinator of the transaction would not know of them."""
    node = Node()
    request = m.TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=1, producer_epoch=0, topics=()
    )
    node.send(request)
    node.answer(seen(ME, ME))
    node.answer(seen(ANN, ANN, ME))
    assert node.reply() == refusal(request, Code.POLICY_VIOLATION)


def test_lists_cover_all_groups_of_a_ring() -> None:
    """KAF-3"""
    node = Node()
    arcs = tuple(
        ArcView(f"g-{each}", "00", "01", f"{each}/g", (f"{each}/g",), 1, False)
        for each in (ME, ANN)
    )
    retired = ArcView("g-3", "", "02", "", (), 1, True)
    node.ring = RingView(0, ME, (), (*arcs, retired), None)
    node.send(m.MetadataRequest(topics=None))
    for each in (ME, ANN):
        node.answer(seen(each, each))
    assert [each.arc for each in node.asked] == list(arcs)
    for name in ("b", "a"):
        views = (TopicView(name, 1, 0, 0, 0, Policy(), (), 0),)
        node.answer(View(0, views, False, ME, "0"))
    node.answer(seen(ANN, ANN))
    node.answer(seen(ME, ME))
    response = node.reply()
    assert [each.name for each in response.topics] == ["a", "b"]
    assert [each.node_id for each in response.brokers] == [broker_id(ME), broker_id(ANN)]


def test_metadata_without_topics_names_all_nodes_of_the_group() -> None:
    """KAF-3: an admin client asks for the brokers only."""
    for topics in ((), None):
        node = Node()
        node.send(m.MetadataRequest(topics=topics))
        assert (node.asked[0].topic, node.asked[0].arc) == ("", None)
        node.answer(seen(ANN, ANN, ME))
        if topics is None:
            node.answer(View(0, (), False, ANN, "0"))
        assert node.reply().brokers == (broker(ME), broker(ANN))
