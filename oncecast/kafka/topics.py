"""Metadata, topics and their configuration.

Every topic is a Kafka topic with one partition. A topic that a Kafka client creates keeps both read
and unread messages for a limited time (`retention.ms`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncecast.kafka import messages as m
from oncecast.kafka.backend import Backend, code_of, refused
from oncecast.kafka.brokers import Brokers
from oncecast.kafka.errors import Code, clipped
from oncecast.kafka.gather import Gather
from oncecast.kafka.layout import Body
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.frames import ArcView, RingView, TopicView, View
from oncecast.wire.kafka_records import MILLISECOND
from oncecast.wire.retention import Policy

TIMEOUT = 15.0
TOPIC, BROKER = 2, 4  # resource types
CONFIGURED, DEFAULT = 1, 5  # sources of a configuration value
RETENTION_MS, RETENTION_BYTES, CLEANUP = "retention.ms", "retention.bytes", "cleanup.policy"
UNLIMITED = -1
INT64_MAX = (1 << 63) - 1  # the largest value of a Kafka configuration
AGE_MS_MAX = INT64_MAX // MILLISECOND  # a longer time means no limit
NO_LEADER = -1
SET, REMOVE = 0, 1  # operations of IncrementalAlterConfigs

Reply = Callable[[Any], None]
Handler = Callable[[Any, Reply], None]


class Topics:
    def __init__(
        self, backend: Backend, brokers: Brokers, *, auto_create: bool, retention_us: int
    ) -> None:
        self._backend, self._brokers = backend, brokers
        self._auto_create = auto_create
        self._policy = hard_limit(retention_us, 0)

    def handlers(self) -> dict[type[Body], Handler]:
        return {
            m.MetadataRequest: self.metadata,
            m.CreateTopicsRequest: self.create,
            m.DeleteTopicsRequest: self.delete,
            m.CreatePartitionsRequest: self.add_partitions,
            m.DescribeConfigsRequest: self.describe_configs,
            m.AlterConfigsRequest: self.alter_configs,
            m.IncrementalAlterConfigsRequest: self.alter_some_configs,
        }

    # -- metadata --

    def metadata(self, request: m.MetadataRequest, reply: Reply) -> None:
        def done(topics: tuple[m.MetadataResponseTopic, ...]) -> None:
            reply(
                m.MetadataResponse(
                    brokers=self._brokers.all(),
                    cluster_id="oncecast",
                    controller_id=self._brokers.own.node_id,
                    topics=topics,
                )
            )

        def listed(views: list[TopicView] | None) -> None:
            if views is None:  # A client repeats a request that names no broker.
                reply(m.MetadataResponse(brokers=(), topics=()))
            else:
                gather = Gather(len(views), done)
                for number, each in enumerate(views):
                    self._known(each.name, gather.slot(number))

        if request.topics is None:
            self.all(listed)
            return
        if not request.topics and not self._brokers.alone:
            self._survey(lambda _: done(()))
            return
        create = self._auto_create and request.allow_auto_topic_creation
        gather = Gather(len(request.topics), done)
        for number, topic in enumerate(request.topics):
            self._describe(topic.name, gather.slot(number), create=create)

    def all(
        self, then: Callable[[list[TopicView] | None], None], *, subscriptions: bool = False
    ) -> None:
        """Call `then` with all topics of the group or the ring, or with None without an answer."""

        def done(found: tuple[list[TopicView] | None, ...]) -> None:
            lists = [each for each in found if each is not None]
            if len(lists) < len(found):
                then(None)
                return
            # A topic that moves between two groups may be in the lists of both.
            once = {view.name: view for each in lists for view in each}
            then([once[name] for name in sorted(once)])

        def surveyed(owners: list[ArcView | None]) -> None:
            gather = Gather(len(owners), done)
            for number, arc in enumerate(owners):
                self._list(arc, gather.slot(number), subscriptions=subscriptions)

        self._survey(surveyed)

    def _survey(self, then: Callable[[list[ArcView | None]], None]) -> None:
        """Learn the brokers. Call `then` with the arcs of the ring, or with None for the group."""

        def seen(outcome: Value) -> None:
            arcs = list(outcome.groups) if isinstance(outcome, RingView) else []
            owners: list[ArcView | None] = [
                arc for arc in arcs if arc.low and (arc.leader or arc.nodes)
            ]
            groups = owners or [None]
            self._brokers.survey(groups, lambda: then(groups))

        self._backend.ring(seen, TIMEOUT)

    def _list(
        self,
        arc: ArcView | None,
        then: Callable[[list[TopicView] | None], None],
        *,
        subscriptions: bool,
    ) -> None:
        """Call `then` with all topics of a group, page by page."""
        found: list[TopicView] = []

        def page(outcome: Value) -> None:
            if isinstance(outcome, View):
                found.extend(outcome.topics)
                if outcome.more and outcome.topics:
                    ask(outcome.topics[-1].name)
                    return
            then(found if isinstance(outcome, View) else None)

        def ask(after: str) -> None:
            self._backend.list(page, TIMEOUT, arc=arc, after=after, subscriptions=subscriptions)

        ask("")

    def _describe(
        self, name: str, then: Callable[[m.MetadataResponseTopic], None], *, create: bool
    ) -> None:
        def created(outcome: Value) -> None:
            if refused(outcome) and code_of(outcome) != Code.TOPIC_ALREADY_EXISTS:
                then(m.MetadataResponseTopic(name=name, error_code=code_of(outcome)))
            else:
                self._known(name, then)

        def seen(outcome: Value) -> None:
            if isinstance(outcome, View) and outcome.topics:
                self._known(name, then)
            elif isinstance(outcome, View) or code_of(outcome) == Code.UNKNOWN_TOPIC_OR_PARTITION:
                if create:
                    command = do.CreateTopic(name, 0, self._policy)
                    self._backend.do(command, created, TIMEOUT)
                else:
                    code = Code.UNKNOWN_TOPIC_OR_PARTITION
                    then(m.MetadataResponseTopic(name=name, error_code=code))
            else:
                then(m.MetadataResponseTopic(name=name, error_code=code_of(outcome)))

        self._backend.look(seen, TIMEOUT, topic=name)

    def _known(self, name: str, then: Callable[[m.MetadataResponseTopic], None]) -> None:
        """Describe a topic that exists."""

        def located(leader: m.MetadataBroker | None) -> None:
            if leader is None:
                partition = m.MetadataResponsePartition(
                    error_code=Code.LEADER_NOT_AVAILABLE,
                    partition_index=0,
                    leader_id=NO_LEADER,
                    replica_nodes=(),
                    isr_nodes=(),
                )
            else:
                id = leader.node_id
                partition = m.MetadataResponsePartition(
                    partition_index=0, leader_id=id, replica_nodes=(id,), isr_nodes=(id,)
                )
            then(m.MetadataResponseTopic(name=name, partitions=(partition,)))

        self._brokers.locate(name, located)

    # -- create and delete --

    def create(self, request: m.CreateTopicsRequest, reply: Reply) -> None:
        def done(found: tuple[m.TopicError, ...]) -> None:
            reply(m.CreateTopicsResponse(topics=found))

        gather = Gather(len(request.topics), done)
        for number, topic in enumerate(request.topics):
            self._create(topic, gather.slot(number), validate_only=request.validate_only)

    def _create(
        self,
        topic: m.CreatableTopic,
        then: Callable[[m.TopicError], None],
        *,
        validate_only: bool,
    ) -> None:
        def answer(code: Code, message: str | None = None) -> None:
            then(m.TopicError(name=topic.name, error_code=code, error_message=clipped(message)))

        if topic.num_partitions not in (-1, 1) or len(topic.assignments) > 1:
            answer(Code.INVALID_PARTITIONS, "a topic has exactly one partition; request 1")
            return
        try:
            policy = changed(self._policy, {each.name: each.value for each in topic.configs})
        except ValueError as error:
            answer(Code.INVALID_CONFIG, str(error))
            return

        def created(outcome: Value) -> None:
            if refused(outcome):
                answer(code_of(outcome), str(outcome))
            elif getattr(outcome, "already", False):
                answer(Code.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} already exists")
            else:
                answer(Code.NONE)

        if validate_only:
            answer(Code.NONE)
        else:
            self._backend.do(do.CreateTopic(topic.name, 0, policy), created, TIMEOUT)

    def delete(self, request: m.DeleteTopicsRequest, reply: Reply) -> None:
        names = request.topic_names

        def done(found: tuple[Code, ...]) -> None:
            answers = zip(names, found, strict=True)
            reply(
                m.DeleteTopicsResponse(
                    responses=tuple(m.DeletedTopic(name=n, error_code=c) for n, c in answers)
                )
            )

        gather = Gather(len(names), done)
        for number, name in enumerate(names):
            put = gather.slot(number)

            def deleted(outcome: Value, put: Callable[[Code], None] = put) -> None:
                if refused(outcome):
                    put(code_of(outcome))
                else:
                    already = getattr(outcome, "already", False)
                    put(Code.UNKNOWN_TOPIC_OR_PARTITION if already else Code.NONE)

            self._backend.do(do.DeleteTopic(name, 0), deleted, TIMEOUT)

    def add_partitions(self, request: m.CreatePartitionsRequest, reply: Reply) -> None:
        message = "a topic has exactly one partition"
        reply(
            m.CreatePartitionsResponse(
                results=tuple(
                    m.TopicError(
                        name=each.name, error_code=Code.INVALID_PARTITIONS, error_message=message
                    )
                    for each in request.topics
                )
            )
        )

    # -- configuration --

    def describe_configs(self, request: m.DescribeConfigsRequest, reply: Reply) -> None:
        def done(found: tuple[m.DescribedResource, ...]) -> None:
            reply(m.DescribeConfigsResponse(results=found))

        gather = Gather(len(request.resources), done)
        for number, resource in enumerate(request.resources):
            self._describe_resource(resource, gather.slot(number))

    def _describe_resource(
        self, resource: m.DescribeConfigsResource, then: Callable[[m.DescribedResource], None]
    ) -> None:
        kind, name, keys = (
            resource.resource_type,
            resource.resource_name,
            resource.configuration_keys,
        )

        def seen(outcome: Value) -> None:
            if not (isinstance(outcome, View) and outcome.topics):
                code = Code.UNKNOWN_TOPIC_OR_PARTITION
                code = code if isinstance(outcome, View) else code_of(outcome)
                then(m.DescribedResource(error_code=code, resource_type=kind, resource_name=name))
                return
            values = configuration(outcome.topics[0].policy)
            configs = tuple(
                m.DescribedConfig(
                    name=key, value=value, read_only=key == CLEANUP, config_source=CONFIGURED
                )
                for key, value in values.items()
                if keys is None or key in keys
            )
            then(m.DescribedResource(resource_type=kind, resource_name=name, configs=configs))

        if kind == TOPIC:
            self._backend.look(seen, TIMEOUT, topic=name)
        elif kind == BROKER:
            then(m.DescribedResource(resource_type=kind, resource_name=name))
        else:
            code = Code.INVALID_REQUEST
            then(m.DescribedResource(error_code=code, resource_type=kind, resource_name=name))

    def alter_configs(self, request: m.AlterConfigsRequest, reply: Reply) -> None:
        """Set the whole configuration of each topic. Missing values become the default."""

        def done(found: tuple[m.AlteredResource, ...]) -> None:
            reply(m.AlterConfigsResponse(responses=found))

        gather = Gather(len(request.resources), done)
        for number, each in enumerate(request.resources):
            wanted = {config.name: config.value for config in each.configs}
            self._alter(each.resource_type, each.resource_name, wanted, gather.slot(number))

    def alter_some_configs(self, request: m.IncrementalAlterConfigsRequest, reply: Reply) -> None:
        """Change single values of each topic."""

        def done(found: tuple[m.AlteredResource, ...]) -> None:
            reply(m.IncrementalAlterConfigsResponse(responses=found))

        gather = Gather(len(request.resources), done)
        for number, each in enumerate(request.resources):
            self._alter_some(each, gather.slot(number))

    def _alter_some(
        self, resource: m.IncrementalResource, then: Callable[[m.AlteredResource], None]
    ) -> None:
        kind, name = resource.resource_type, resource.resource_name

        def seen(outcome: Value) -> None:
            if not (isinstance(outcome, View) and outcome.topics):
                code = Code.UNKNOWN_TOPIC_OR_PARTITION
                then(altered(kind, name, code if isinstance(outcome, View) else code_of(outcome)))
                return
            wanted: dict[str, str | None] = dict(configuration(outcome.topics[0].policy))
            for each in resource.configs:
                if each.config_operation not in (SET, REMOVE):
                    message = f"{each.name} is not a list, so only SET and DELETE are supported"
                    then(altered(kind, name, Code.INVALID_CONFIG, message))
                    return
                if each.config_operation == SET:
                    wanted[each.name] = each.value
                else:
                    wanted.pop(each.name, None)
            self._alter(kind, name, wanted, then)

        self._backend.look(seen, TIMEOUT, topic=name)

    def _alter(
        self,
        kind: int,
        name: str,
        wanted: dict[str, str | None],
        then: Callable[[m.AlteredResource], None],
    ) -> None:
        if kind != TOPIC:
            message = "only the configuration of topics can be changed"
            then(altered(kind, name, Code.INVALID_REQUEST, message))
            return
        try:
            policy = changed(self._policy, wanted)
        except ValueError as error:
            then(altered(kind, name, Code.INVALID_CONFIG, str(error)))
            return

        def set_(outcome: Value) -> None:
            why = (code_of(outcome), str(outcome)) if refused(outcome) else (Code.NONE, None)
            then(altered(kind, name, *why))

        self._backend.do(do.SetPolicy(name, 0, policy), set_, TIMEOUT)


def altered(kind: int, name: str, code: Code, message: str | None = None) -> m.AlteredResource:
    return m.AlteredResource(
        error_code=code, error_message=clipped(message), resource_type=kind, resource_name=name
    )


def hard_limit(age_us: int, bytes_max: int) -> Policy:
    """Return a policy that deletes read and unread messages by age and size."""
    if age_us <= 0 and bytes_max <= 0:
        return Policy(keep_all=True)
    return Policy(age_us=max(age_us, 0), bytes_max=max(bytes_max, 0), drop_unread=True)


def configuration(policy: Policy) -> dict[str, str]:
    """Return the policy as Kafka configuration."""
    age = policy.age_us // MILLISECOND if policy.age_us else UNLIMITED
    size = policy.bytes_max or UNLIMITED
    return {RETENTION_MS: str(age), RETENTION_BYTES: str(size), CLEANUP: "delete"}


def changed(policy: Policy, wanted: dict[str, str | None]) -> Policy:
    """Return the policy with this configuration. Raise ValueError if it is not supported."""
    age, size = policy.age_us, policy.bytes_max
    for name, value in wanted.items():
        if name == RETENTION_MS and value is not None:
            milliseconds = max(integer(name, value), 0)
            age = milliseconds * MILLISECOND if milliseconds <= AGE_MS_MAX else 0
        elif name == RETENTION_BYTES and value is not None:
            size = max(integer(name, value), 0)
        elif name == CLEANUP and value not in (None, "delete"):
            raise ValueError(f"cleanup.policy={value} is not supported; use delete")
    return hard_limit(age, size)


def integer(name: str, value: str) -> int:
    try:
        found = int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r} is not an integer") from None
    if abs(found) > INT64_MAX:
        raise ValueError(f"{name}={value!r} has more than 64 bits")
    return found
