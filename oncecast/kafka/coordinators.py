"""Send requests about groups and transactions to the broker that coordinates them.

The topic with the name of a group, or of a transactional id, decides the coordinator. So a name
with a tag has the same coordinator as the topics with this tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncecast.kafka import messages as m
from oncecast.kafka.brokers import Brokers
from oncecast.kafka.errors import Code
from oncecast.kafka.layout import Body

NAME_MAX = 255  # longer names have the coordinator of their first characters

Reply = Callable[[Any], None]
Handler = Callable[[Any, Reply], None]

OF_GROUP = (
    *(m.JoinGroupRequest, m.SyncGroupRequest, m.HeartbeatRequest, m.LeaveGroupRequest),
    *(m.OffsetCommitRequest, m.OffsetFetchRequest, m.TxnOffsetCommitRequest),
)
OF_TRANSACTION = (
    *(m.InitProducerIdRequest, m.AddPartitionsToTxnRequest),
    *(m.AddOffsetsToTxnRequest, m.EndTxnRequest),
)


def name_of(request: Body) -> str | None:
    """Return the name that decides the coordinator of a request, or None if any broker serves it.

    Clients name only groups with the same coordinator in one request.
    """
    name: str | None = None
    if isinstance(request, OF_GROUP):
        name = request.group_id
    elif isinstance(request, OF_TRANSACTION):
        name = request.transactional_id
    elif isinstance(request, m.DescribeGroupsRequest):
        name = next(iter(request.groups), None)
    elif isinstance(request, m.DeleteGroupsRequest):
        name = next(iter(request.groups_names), None)
    return name[:NAME_MAX] if name else None


class Coordinators:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def find(self, request: m.FindCoordinatorRequest, reply: Reply) -> None:
        def located(broker: m.MetadataBroker | None) -> None:
            if broker is None:
                code = Code.COORDINATOR_NOT_AVAILABLE
                reply(m.FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1))
            else:
                reply(
                    m.FindCoordinatorResponse(
                        node_id=broker.node_id, host=broker.host, port=broker.port
                    )
                )

        self._brokers.locate(request.key[:NAME_MAX], located)

    def guide(self, request: Body, reply: Reply, serve: Callable[[], None]) -> None:
        """Serve the request here, or answer that another broker is the coordinator."""
        name = name_of(request)
        if name is None or self._brokers.alone:
            serve()
            return

        def checked(here: bool) -> None:
            if not here:
                reply(refusal(request, Code.NOT_COORDINATOR))
            elif isinstance(request, m.TxnOffsetCommitRequest):
                self._brokers.check(request.transactional_id[:NAME_MAX], together)
            else:
                serve()

        def together(here: bool) -> None:
            """Serve a commit of offsets in a transaction, if both have this coordinator."""
            if here:
                serve()
            else:
                reply(refusal(request, Code.POLICY_VIOLATION))

        self._brokers.check(name, checked)


# Long because each kind of response has its own form.
def refusal(request: Body, code: Code) -> Body:
    """Return the response that refuses a request with this code."""
    match request:
        case m.JoinGroupRequest(member_id=member):
            return m.JoinGroupResponse(error_code=code, member_id=member)
        case m.SyncGroupRequest():
            return m.SyncGroupResponse(error_code=code)
        case m.HeartbeatRequest():
            return m.HeartbeatResponse(error_code=code)
        case m.LeaveGroupRequest():
            return m.LeaveGroupResponse(error_code=code)
        case m.OffsetCommitRequest(topics=topics):
            return m.OffsetCommitResponse(topics=committed(topics, code))
        case m.TxnOffsetCommitRequest(topics=topics):
            return m.TxnOffsetCommitResponse(topics=committed(topics, code))
        case m.OffsetFetchRequest(topics=wanted):
            found = [
                m.FetchedOffsets(
                    name=topic.name,
                    partitions=tuple(
                        m.FetchedOffset(partition_index=index, committed_offset=-1, error_code=code)
                        for index in topic.partition_indexes
                    ),
                )
                for topic in wanted or ()
            ]
            return m.OffsetFetchResponse(error_code=code, topics=tuple(found))
        case m.DescribeGroupsRequest(groups=names):
            described = [m.DescribedGroup(group_id=each, error_code=code) for each in names]
            return m.DescribeGroupsResponse(groups=tuple(described))
        case m.DeleteGroupsRequest(groups_names=names):
            deleted = [m.DeletedGroup(group_id=each, error_code=code) for each in names]
            return m.DeleteGroupsResponse(results=tuple(deleted))
        case m.InitProducerIdRequest():
            return m.InitProducerIdResponse(error_code=code)
        case m.AddPartitionsToTxnRequest(topics=added):
            results = [
                m.AddedPartitions(
                    name=topic.name,
                    partitions=tuple(
                        m.AddedPartition(partition_index=index, error_code=code)
                        for index in topic.partitions
                    ),
                )
                for topic in added
            ]
            return m.AddPartitionsToTxnResponse(results=tuple(results))
        case m.AddOffsetsToTxnRequest():
            return m.AddOffsetsToTxnResponse(error_code=code)
        case m.EndTxnRequest():
            return m.EndTxnResponse(error_code=code)
        case _:
            raise AssertionError(request)


def committed(topics: Any, code: Code) -> tuple[m.CommittedTopic, ...]:
    """Return the same code for all partitions of a commit."""
    return tuple(
        m.CommittedTopic(
            name=topic.name,
            partitions=tuple(
                m.CommittedPartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ),
        )
        for topic in topics
    )
