"""Requests and responses of the Kafka protocol, in the versions that the front end offers.

Names follow the Kafka protocol guide, in snake case. `APIS` at the end lists every request with its
key, its versions and its response.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from oncecast.kafka.layout import (
    Body,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable,
    nullable_binary,
    nullable_string,
    since,
    string,
)

# Headers.


class RequestHeader(Body):
    """The start of a request. A flexible request has tagged fields after the client id.

    The client id keeps its old encoding even then, so the tagged fields are read separately.
    """

    api_key: int16
    api_version: int16
    correlation_id: int32
    client_id: nullable_string


# ApiVersions.


class ApiVersionsRequest(Body):
    client_software_name: Annotated[string, since(3)] = ""
    client_software_version: Annotated[string, since(3)] = ""


class ApiVersion(Body):
    api_key: int16
    min_version: int16
    max_version: int16


class ApiVersionsResponse(Body):
    error_code: int16 = 0
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[int32, since(1)] = 0


# Metadata.


class MetadataTopic(Body):
    name: string


class MetadataRequest(Body):
    """If `topics` is null, the request asks for all topics. If it is empty, it asks for none."""

    topics: Annotated[tuple[MetadataTopic, ...] | None, nullable]
    allow_auto_topic_creation: Annotated[boolean, since(4)] = True
    include_cluster_authorized_operations: Annotated[boolean, since(8, 10)] = False
    include_topic_authorized_operations: Annotated[boolean, since(8)] = False


class MetadataBroker(Body):
    node_id: int32
    host: string
    port: int32
    rack: nullable_string = None


class MetadataResponsePartition(Body):
    error_code: int16 = 0
    partition_index: int32
    leader_id: int32
    leader_epoch: Annotated[int32, since(7)] = -1
    replica_nodes: tuple[int32, ...]
    isr_nodes: tuple[int32, ...]
    offline_replicas: Annotated[tuple[int32, ...], since(5)] = ()


class MetadataResponseTopic(Body):
    error_code: int16 = 0
    name: string
    is_internal: boolean = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[int32, since(8)] = -(2**31)


class MetadataResponse(Body):
    throttle_time_ms: Annotated[int32, since(3)] = 0
    brokers: tuple[MetadataBroker, ...]
    cluster_id: Annotated[nullable_string, since(2)] = None
    controller_id: int32 = -1
    topics: tuple[MetadataResponseTopic, ...]
    cluster_authorized_operations: Annotated[int32, since(8, 10)] = -(2**31)


# Produce.


class ProducePartition(Body):
    index: int32
    records: nullable_binary


class ProduceTopic(Body):
    name: string
    partitions: tuple[ProducePartition, ...]


class ProduceRequest(Body):
    transactional_id: nullable_string = None
    acks: int16
    timeout_ms: int32
    topics: tuple[ProduceTopic, ...]


class RecordError(Body):
    batch_index: int32
    batch_index_error_message: nullable_string = None


class ProduceResponsePartition(Body):
    index: int32
    error_code: int16 = 0
    base_offset: int64 = -1
    log_append_time_ms: int64 = -1
    log_start_offset: Annotated[int64, since(5)] = -1
    record_errors: Annotated[tuple[RecordError, ...], since(8)] = ()
    error_message: Annotated[nullable_string, since(8)] = None


class ProduceResponseTopic(Body):
    name: string
    partitions: tuple[ProduceResponsePartition, ...]


class ProduceResponse(Body):
    topics: tuple[ProduceResponseTopic, ...]
    throttle_time_ms: int32 = 0


# Fetch.


class FetchPartition(Body):
    partition: int32
    current_leader_epoch: Annotated[int32, since(9)] = -1
    fetch_offset: int64
    log_start_offset: Annotated[int64, since(5)] = -1
    partition_max_bytes: int32


class FetchTopic(Body):
    topic: string
    partitions: tuple[FetchPartition, ...]


class ForgottenTopic(Body):
    topic: string
    partitions: tuple[int32, ...]


class FetchRequest(Body):
    replica_id: int32 = -1
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32
    isolation_level: int8 = 0
    session_id: Annotated[int32, since(7)] = 0
    session_epoch: Annotated[int32, since(7)] = -1
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], since(7)] = ()
    rack_id: Annotated[string, since(11)] = ""


class AbortedTransaction(Body):
    producer_id: int64
    first_offset: int64


class FetchResponsePartition(Body):
    partition_index: int32
    error_code: int16 = 0
    high_watermark: int64 = -1
    last_stable_offset: int64 = -1
    log_start_offset: Annotated[int64, since(5)] = -1
    aborted_transactions: Annotated[tuple[AbortedTransaction, ...] | None, nullable] = None
    preferred_read_replica: Annotated[int32, since(11)] = -1
    records: nullable_binary = b""


class FetchResponseTopic(Body):
    topic: string
    partitions: tuple[FetchResponsePartition, ...]


class FetchResponse(Body):
    throttle_time_ms: int32 = 0
    error_code: Annotated[int16, since(7)] = 0
    session_id: Annotated[int32, since(7)] = 0
    responses: tuple[FetchResponseTopic, ...]


# ListOffsets.


class ListOffsetsPartition(Body):
    partition_index: int32
    current_leader_epoch: Annotated[int32, since(4)] = -1
    timestamp: int64


class ListOffsetsTopic(Body):
    name: string
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(Body):
    replica_id: int32 = -1
    isolation_level: Annotated[int8, since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...]


class ListOffsetsResponsePartition(Body):
    partition_index: int32
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: Annotated[int32, since(4)] = -1


class ListOffsetsResponseTopic(Body):
    name: string
    partitions: tuple[ListOffsetsResponsePartition, ...]


class ListOffsetsResponse(Body):
    throttle_time_ms: Annotated[int32, since(2)] = 0
    topics: tuple[ListOffsetsResponseTopic, ...]


# Topics.


class ReplicaAssignment(Body):
    partition_index: int32
    broker_ids: tuple[int32, ...]


class TopicConfig(Body):
    name: string
    value: nullable_string = None


class CreatableTopic(Body):
    name: string
    num_partitions: int32
    replication_factor: int16
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[TopicConfig, ...] = ()


class CreateTopicsRequest(Body):
    topics: tuple[CreatableTopic, ...]
    timeout_ms: int32
    validate_only: boolean = False


class TopicError(Body):
    name: string
    error_code: int16 = 0
    error_message: nullable_string = None


class CreateTopicsResponse(Body):
    throttle_time_ms: int32 = 0
    topics: tuple[TopicError, ...]


class DeleteTopicsRequest(Body):
    topic_names: tuple[string, ...]
    timeout_ms: int32


class DeletedTopic(Body):
    name: string
    error_code: int16 = 0


class DeleteTopicsResponse(Body):
    throttle_time_ms: int32 = 0
    responses: tuple[DeletedTopic, ...]


class PartitionsAssignment(Body):
    broker_ids: tuple[int32, ...]


class MorePartitions(Body):
    name: string
    count: int32
    assignments: Annotated[tuple[PartitionsAssignment, ...] | None, nullable] = None


class CreatePartitionsRequest(Body):
    topics: tuple[MorePartitions, ...]
    timeout_ms: int32
    validate_only: boolean = False


class CreatePartitionsResponse(Body):
    throttle_time_ms: int32 = 0
    results: tuple[TopicError, ...]


# Configuration.


class DescribeConfigsResource(Body):
    resource_type: int8
    resource_name: string
    configuration_keys: Annotated[tuple[string, ...] | None, nullable] = None


class DescribeConfigsRequest(Body):
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: Annotated[boolean, since(1)] = False


class ConfigSynonym(Body):
    name: string
    value: nullable_string
    source: int8


class DescribedConfig(Body):
    name: string
    value: nullable_string
    read_only: boolean
    is_default: Annotated[boolean, since(0, 0)] = False
    config_source: Annotated[int8, since(1)] = -1
    is_sensitive: boolean = False
    synonyms: Annotated[tuple[ConfigSynonym, ...], since(1)] = ()


class DescribedResource(Body):
    error_code: int16 = 0
    error_message: nullable_string = None
    resource_type: int8
    resource_name: string
    configs: tuple[DescribedConfig, ...] = ()


class DescribeConfigsResponse(Body):
    throttle_time_ms: int32 = 0
    results: tuple[DescribedResource, ...]


class AlterConfigsResource(Body):
    resource_type: int8
    resource_name: string
    configs: tuple[TopicConfig, ...]


class AlterConfigsRequest(Body):
    resources: tuple[AlterConfigsResource, ...]
    validate_only: boolean


class AlteredResource(Body):
    error_code: int16 = 0
    error_message: nullable_string = None
    resource_type: int8
    resource_name: string


class AlterConfigsResponse(Body):
    throttle_time_ms: int32 = 0
    responses: tuple[AlteredResource, ...]


class AlterableConfig(Body):
    name: string
    config_operation: int8  # 0: set, 1: delete, 2: append, 3: subtract
    value: nullable_string


class IncrementalResource(Body):
    resource_type: int8
    resource_name: string
    configs: tuple[AlterableConfig, ...]


class IncrementalAlterConfigsRequest(Body):
    resources: tuple[IncrementalResource, ...]
    validate_only: boolean


class IncrementalAlterConfigsResponse(Body):
    throttle_time_ms: int32 = 0
    responses: tuple[AlteredResource, ...]


# Consumer groups.


class FindCoordinatorRequest(Body):
    key: string
    key_type: Annotated[int8, since(1)] = 0  # 0: group, 1: transaction


class FindCoordinatorResponse(Body):
    throttle_time_ms: Annotated[int32, since(1)] = 0
    error_code: int16 = 0
    error_message: Annotated[nullable_string, since(1)] = None
    node_id: int32
    host: string
    port: int32


class JoinProtocol(Body):
    name: string
    metadata: binary


class JoinGroupRequest(Body):
    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: Annotated[int32, since(1)] = -1
    member_id: string
    group_instance_id: Annotated[nullable_string, since(5)] = None
    protocol_type: string
    protocols: tuple[JoinProtocol, ...]


class JoinedMember(Body):
    member_id: string
    group_instance_id: Annotated[nullable_string, since(5)] = None
    metadata: binary


class JoinGroupResponse(Body):
    throttle_time_ms: Annotated[int32, since(2)] = 0
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_name: string = ""
    leader: string = ""
    member_id: string = ""
    members: tuple[JoinedMember, ...] = ()


class SyncAssignment(Body):
    member_id: string
    assignment: binary


class SyncGroupRequest(Body):
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: Annotated[nullable_string, since(3)] = None
    assignments: tuple[SyncAssignment, ...]


class SyncGroupResponse(Body):
    throttle_time_ms: Annotated[int32, since(1)] = 0
    error_code: int16 = 0
    assignment: binary = b""


class HeartbeatRequest(Body):
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: Annotated[nullable_string, since(3)] = None


class HeartbeatResponse(Body):
    throttle_time_ms: Annotated[int32, since(1)] = 0
    error_code: int16 = 0


class LeavingMember(Body):
    member_id: string
    group_instance_id: nullable_string = None


class LeaveGroupRequest(Body):
    group_id: string
    member_id: Annotated[string, since(0, 2)] = ""
    members: Annotated[tuple[LeavingMember, ...], since(3)] = ()


class LeftMember(Body):
    member_id: string
    group_instance_id: nullable_string = None
    error_code: int16 = 0


class LeaveGroupResponse(Body):
    throttle_time_ms: Annotated[int32, since(1)] = 0
    error_code: int16 = 0
    members: Annotated[tuple[LeftMember, ...], since(3)] = ()


class CommitPartition(Body):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: Annotated[int32, since(6)] = -1
    committed_metadata: nullable_string = None


class CommitTopic(Body):
    name: string
    partitions: tuple[CommitPartition, ...]


class OffsetCommitRequest(Body):
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: Annotated[nullable_string, since(7)] = None
    retention_time_ms: Annotated[int64, since(2, 4)] = -1
    topics: tuple[CommitTopic, ...]


class CommittedPartition(Body):
    partition_index: int32
    error_code: int16 = 0


class CommittedTopic(Body):
    name: string
    partitions: tuple[CommittedPartition, ...]


class OffsetCommitResponse(Body):
    throttle_time_ms: Annotated[int32, since(3)] = 0
    topics: tuple[CommittedTopic, ...]


class OffsetFetchTopic(Body):
    name: string
    partition_indexes: tuple[int32, ...]


class OffsetFetchRequest(Body):
    """From version 2 on, the request asks for all topics of the group if `topics` is null."""

    group_id: string
    topics: Annotated[tuple[OffsetFetchTopic, ...] | None, nullable]


class FetchedOffset(Body):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: Annotated[int32, since(5)] = -1
    metadata: nullable_string = ""
    error_code: int16 = 0


class FetchedOffsets(Body):
    name: string
    partitions: tuple[FetchedOffset, ...]


class OffsetFetchResponse(Body):
    throttle_time_ms: Annotated[int32, since(3)] = 0
    topics: tuple[FetchedOffsets, ...]
    error_code: Annotated[int16, since(2)] = 0


class DescribeGroupsRequest(Body):
    groups: tuple[string, ...]
    include_authorized_operations: Annotated[boolean, since(3)] = False


class DescribedMember(Body):
    member_id: string
    group_instance_id: Annotated[nullable_string, since(4)] = None
    client_id: string
    client_host: string
    member_metadata: binary
    member_assignment: binary


class DescribedGroup(Body):
    error_code: int16 = 0
    group_id: string
    group_state: string = ""
    protocol_type: string = ""
    protocol_data: string = ""
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: Annotated[int32, since(3)] = -(2**31)


class DescribeGroupsResponse(Body):
    throttle_time_ms: Annotated[int32, since(1)] = 0
    groups: tuple[DescribedGroup, ...]


class ListGroupsRequest(Body):
    pass


class ListedGroup(Body):
    group_id: string
    protocol_type: string


class ListGroupsResponse(Body):
    throttle_time_ms: Annotated[int32, since(1)] = 0
    error_code: int16 = 0
    groups: tuple[ListedGroup, ...]


class DeleteGroupsRequest(Body):
    groups_names: tuple[string, ...]


class DeletedGroup(Body):
    group_id: string
    error_code: int16 = 0


class DeleteGroupsResponse(Body):
    throttle_time_ms: int32 = 0
    results: tuple[DeletedGroup, ...]


# Idempotent producers.


class InitProducerIdRequest(Body):
    transactional_id: nullable_string
    transaction_timeout_ms: int32
    producer_id: Annotated[int64, since(3)] = -1
    producer_epoch: Annotated[int16, since(3)] = -1


class InitProducerIdResponse(Body):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = -1


# Transactions.


class AddedTopic(Body):
    name: string
    partitions: tuple[int32, ...]


class AddPartitionsToTxnRequest(Body):
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    topics: tuple[AddedTopic, ...]


class AddedPartition(Body):
    partition_index: int32
    error_code: int16 = 0


class AddedPartitions(Body):
    name: string
    partitions: tuple[AddedPartition, ...]


class AddPartitionsToTxnResponse(Body):
    throttle_time_ms: int32 = 0
    results: tuple[AddedPartitions, ...]


class AddOffsetsToTxnRequest(Body):
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


class AddOffsetsToTxnResponse(Body):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0


class EndTxnRequest(Body):
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean


class EndTxnResponse(Body):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0


class TxnCommitPartition(Body):
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: Annotated[int32, since(2)] = -1
    committed_metadata: nullable_string = None


class TxnCommitTopic(Body):
    name: string
    partitions: tuple[TxnCommitPartition, ...]


class TxnOffsetCommitRequest(Body):
    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: Annotated[int32, since(3)] = -1
    member_id: Annotated[string, since(3)] = ""
    group_instance_id: Annotated[nullable_string, since(3)] = None
    topics: tuple[TxnCommitTopic, ...]


class TxnOffsetCommitResponse(Body):
    throttle_time_ms: int32 = 0
    topics: tuple[CommittedTopic, ...]


# Logins.


class SaslHandshakeRequest(Body):
    mechanism: string


class SaslHandshakeResponse(Body):
    error_code: int16 = 0
    mechanisms: tuple[string, ...] = ()


class SaslAuthenticateRequest(Body):
    auth_bytes: binary


class SaslAuthenticateResponse(Body):
    error_code: int16 = 0
    error_message: nullable_string = None
    auth_bytes: binary = b""
    session_lifetime_ms: Annotated[int64, since(1)] = 0


class Api(NamedTuple):
    """A request with the versions that the front end offers."""

    key: int
    request: type[Body]
    response: type[Body]
    first: int
    last: int
    flexible: int  # the first version with the compact encoding

    def offers(self, version: int) -> bool:
        return self.first <= version <= self.last


APIS = tuple(
    Api(*each)
    for each in (
        (0, ProduceRequest, ProduceResponse, 3, 8, 9),
        (1, FetchRequest, FetchResponse, 4, 11, 12),
        (2, ListOffsetsRequest, ListOffsetsResponse, 1, 5, 6),
        (3, MetadataRequest, MetadataResponse, 1, 8, 9),
        (8, OffsetCommitRequest, OffsetCommitResponse, 2, 7, 8),
        (9, OffsetFetchRequest, OffsetFetchResponse, 1, 5, 6),
        (10, FindCoordinatorRequest, FindCoordinatorResponse, 0, 2, 3),
        (11, JoinGroupRequest, JoinGroupResponse, 0, 5, 6),
        (12, HeartbeatRequest, HeartbeatResponse, 0, 3, 4),
        (13, LeaveGroupRequest, LeaveGroupResponse, 0, 3, 4),
        (14, SyncGroupRequest, SyncGroupResponse, 0, 3, 4),
        (15, DescribeGroupsRequest, DescribeGroupsResponse, 0, 4, 5),
        (16, ListGroupsRequest, ListGroupsResponse, 0, 2, 3),
        (17, SaslHandshakeRequest, SaslHandshakeResponse, 1, 1, 2),
        (18, ApiVersionsRequest, ApiVersionsResponse, 0, 2, 3),
        (19, CreateTopicsRequest, CreateTopicsResponse, 2, 4, 5),
        (20, DeleteTopicsRequest, DeleteTopicsResponse, 1, 3, 4),
        (22, InitProducerIdRequest, InitProducerIdResponse, 0, 3, 2),
        (24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 0, 1, 3),
        (25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, 0, 1, 3),
        (26, EndTxnRequest, EndTxnResponse, 0, 1, 3),
        (28, TxnOffsetCommitRequest, TxnOffsetCommitResponse, 0, 3, 3),
        (32, DescribeConfigsRequest, DescribeConfigsResponse, 1, 2, 4),
        (33, AlterConfigsRequest, AlterConfigsResponse, 0, 1, 2),
        (36, SaslAuthenticateRequest, SaslAuthenticateResponse, 0, 1, 2),
        (37, CreatePartitionsRequest, CreatePartitionsResponse, 0, 1, 2),
        (42, DeleteGroupsRequest, DeleteGroupsResponse, 0, 1, 2),
        (44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 0, 1),
    )
)
BY_KEY = {api.key: api for api in APIS}
