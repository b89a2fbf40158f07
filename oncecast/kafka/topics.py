"""Metadata, topics and their configuration.

A topic that a Kafka client creates keeps both read and unread messages for a limited time
(`retention.ms`).
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
from oncecast.kafka.making import Making
from oncecast.kafka.partitions import Partitions
from oncecast.kafka.policies import CLEANUP, changed, configuration, hard_limit
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.frames import ArcView, RingView, TopicView, View

TIMEOUT = 15.0
TOPIC, BROKER = 2, 4  # resource types
CONFIGURED, DEFAULT = 1, 5  # sources of a configuration value
NO_LEADER = -1
SET, REMOVE = 0, 1  # operations of IncrementalAlterConfigs

Reply = Callable[[Any], None]
Handler = Callable[[Any, Reply], None]


class Topics:
    def __init__(
        self,
        backend: Backend,
        brokers: Brokers,
        partitions: Partitions,
        *,
        auto_create: bool,
        retention_us: int,
    ) -> None:
        self._backend, self._brokers, self._partitions = backend, brokers, partitions
        self._auto_create = auto_create
        self._policy = hard_limit(retention_us, 0)
        self._making = Making(backend, partitions, self._policy)

    def handlers(self) -> dict[type[Body], Handler]:
        return {
            m.MetadataRequest: self.metadata,
            m.DescribeConfigsRequest: self.describe_configs,
            m.AlterConfigsRequest: self.alter_configs,
            m.IncrementalAlterConfigsRequest: self.alter_some_configs,
            **self._making.handlers(),
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
            if views is None:  # A client retries if the metadata response lists no brokers.
                reply(m.MetadataResponse(brokers=(), topics=()))
            else:
                topics = [each for each in views if not each.partition_of]
                gather = Gather(len(topics), done)
                for number, each in enumerate(topics):
                    self._known(each, gather.slot(number))

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
                self._known(TopicView(name, 0, 0, 0, 0, self._policy, (), 0), then)

        def seen(outcome: Value) -> None:
            if isinstance(outcome, View) and outcome.topics:
                self._known(outcome.topics[0], then)
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

    def _known(self, view: TopicView, then: Callable[[m.MetadataResponseTopic], None]) -> None:
        """Describe a topic that exists."""
        names = self._partitions.names(view)

        def done(partitions: tuple[m.MetadataResponsePartition, ...]) -> None:
            then(m.MetadataResponseTopic(name=view.name, partitions=partitions))

        gather = Gather(len(names), done)
        for index, name in enumerate(names):
            self._locate(index, name, gather.slot(index))

    def _locate(
        self, index: int, name: str, then: Callable[[m.MetadataResponsePartition], None]
    ) -> None:
        def located(leader: m.MetadataBroker | None) -> None:
            if leader is None:
                then(
                    m.MetadataResponsePartition(
                        error_code=Code.LEADER_NOT_AVAILABLE,
                        partition_index=index,
                        leader_id=NO_LEADER,
                        replica_nodes=(),
                        isr_nodes=(),
                    )
                )
                return
            id = leader.node_id
            then(
                m.MetadataResponsePartition(
                    partition_index=index, leader_id=id, replica_nodes=(id,), isr_nodes=(id,)
                )
            )

        # Other partitions of the topic may have told the leader already.
        known = self._brokers.leader(name) if index else None
        if known is None:
            self._brokers.locate(name, located)
        else:
            located(known)

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
            self._partitions.learn(name, outcome.topics[0].partitions)
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

        def set_(refusal: Value | None) -> None:
            why = (Code.NONE, None) if refusal is None else (code_of(refusal), str(refusal))
            then(altered(kind, name, *why))

        self._making.set_policy(name, policy, set_)


def altered(kind: int, name: str, code: Code, message: str | None = None) -> m.AlteredResource:
    return m.AlteredResource(
        error_code=code, error_message=clipped(message), resource_type=kind, resource_name=name
    )
