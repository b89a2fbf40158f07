"""Create, grow and delete topics.

A topic with several partitions is made of one topic for each partition, and of a descriptor, which
comes last. Each command may be repeated, so a client that got no answer can try again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncecast.kafka import messages as m
from oncecast.kafka.backend import Backend, code_of, refused
from oncecast.kafka.errors import Code, clipped
from oncecast.kafka.gather import Gather
from oncecast.kafka.layout import Body
from oncecast.kafka.partitions import Partitions
from oncecast.kafka.policies import changed
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import ClientCommand, TopicView, View
from oncecast.wire.partitions import PARTITIONS_MAX, SetPartitions, partition_topic
from oncecast.wire.retention import Policy

TIMEOUT = 15.0
DEFAULT_COUNT = -1  # the client leaves the number of partitions to the broker
TRIES = 5  # attempts to grow a topic while consumer groups are added to it

Reply = Callable[[Any], None]
Handler = Callable[[Any, Reply], None]
Then = Callable[[Value | None], None]  # gets the first refusal, or None


class Making:
    def __init__(self, backend: Backend, partitions: Partitions, policy: Policy) -> None:
        self._backend, self._partitions, self._policy = backend, partitions, policy

    def handlers(self) -> dict[type[Body], Handler]:
        return {
            m.CreateTopicsRequest: self.create,
            m.DeleteTopicsRequest: self.delete,
            m.CreatePartitionsRequest: self.grow,
        }

    # -- create --

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
        answer = answering(topic.name, then)
        count = len(topic.assignments) or topic.num_partitions
        if count != DEFAULT_COUNT and not 1 <= count <= PARTITIONS_MAX:
            answer(Code.INVALID_PARTITIONS, f"{count} partitions (limit {PARTITIONS_MAX})")
            return
        try:
            policy = changed(self._policy, {each.name: each.value for each in topic.configs})
        except ValueError as error:
            answer(Code.INVALID_CONFIG, str(error))
            return
        if validate_only:
            answer(Code.NONE)
        elif count > 1:
            self._create_partitioned(topic.name, count, policy, answer)
        else:
            self._backend.do(do.CreateTopic(topic.name, 0, policy), created(answer), TIMEOUT)

    def _create_partitioned(self, name: str, count: int, policy: Policy, answer: Answer) -> None:
        def seen(outcome: Value) -> None:
            if isinstance(outcome, View) and outcome.topics:
                answer(Code.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
            elif refused(outcome) and code_of(outcome) != Code.UNKNOWN_TOPIC_OR_PARTITION:
                answer(code_of(outcome), str(outcome))
            else:
                self._all(partitions_of(name, range(count), policy), made)

        def made(refusal: Value | None) -> None:
            if refusal is not None:
                answer(code_of(refusal), str(refusal))
                return
            self._partitions.forget(name)
            descriptor = do.CreateTopic(name, 0, policy, partitions=count)
            self._backend.do(descriptor, created(answer), TIMEOUT)

        self._backend.look(seen, TIMEOUT, topic=name)

    # -- grow --

    def grow(self, request: m.CreatePartitionsRequest, reply: Reply) -> None:
        def done(found: tuple[m.TopicError, ...]) -> None:
            reply(m.CreatePartitionsResponse(results=found))

        gather = Gather(len(request.topics), done)
        for number, topic in enumerate(request.topics):
            answer = answering(topic.name, gather.slot(number))
            self._grow(topic.name, topic.count, answer, TRIES, validate_only=request.validate_only)

    def _grow(
        self, name: str, count: int, answer: Answer, tries: int, *, validate_only: bool
    ) -> None:
        def seen(outcome: Value) -> None:
            view = outcome.topics[0] if isinstance(outcome, View) and outcome.topics else None
            fault = growth_fault(view, count)
            if refused(outcome):
                answer(code_of(outcome), str(outcome))
            elif view is None:
                answer(Code.UNKNOWN_TOPIC_OR_PARTITION)
            elif fault or validate_only:
                answer(Code.INVALID_PARTITIONS if fault else Code.NONE, fault or None)
            else:
                self._add(view, count, lambda outcome: added(outcome, view))

        def added(outcome: Value, view: TopicView) -> None:
            if isinstance(outcome, errors.Fenced) and tries > 1:
                # A consumer group was added meanwhile, so it must get the new partitions as well.
                self._grow(name, count, answer, tries - 1, validate_only=False)
            elif refused(outcome):
                answer(code_of(outcome), str(outcome))
            else:
                self._partitions.learn(name, count)
                answer(Code.NONE)

        self._backend.look(seen, TIMEOUT, topic=name, subscriptions=True)

    def _add(self, view: TopicView, count: int, then: Callable[[Value], None]) -> None:
        """Add partitions, subscribe all native consumer groups, then raise the number."""
        new = range(view.partitions, count)

        def made(refusal: Value | None) -> None:
            if refusal is not None:
                then(refusal)
                return
            subscribes: list[ClientCommand] = [
                do.Subscribe(partition_topic(view.name, index), group.name, do.FromEarliest(), 0)
                for index in new
                for group in view.subscriptions
            ]
            self._all(subscribes, subscribed)

        def subscribed(refusal: Value | None) -> None:
            if refusal is not None:
                then(refusal)
                return
            command = SetPartitions(view.name, 0, count, view.groups_epoch)
            self._backend.do(command, then, TIMEOUT)

        self._all(partitions_of(view.name, new, view.policy), made)

    # -- delete --

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
            self._delete(name, gather.slot(number))

    def _delete(self, name: str, then: Callable[[Code], None]) -> None:
        self._partitions.forget(name)

        def deleted(outcome: Value) -> None:
            if isinstance(outcome, errors.Partitioned):
                self._delete_partitioned(name, outcome.partitions, then)
            elif refused(outcome):
                then(code_of(outcome))
            else:
                already = getattr(outcome, "already", False)
                then(Code.UNKNOWN_TOPIC_OR_PARTITION if already else Code.NONE)

        self._backend.do(do.DeleteTopic(name, 0), deleted, TIMEOUT)

    def _delete_partitioned(self, name: str, count: int, then: Callable[[Code], None]) -> None:
        """Close the descriptor, delete the partitions, then delete the descriptor."""
        parts: list[ClientCommand] = [
            do.DeleteTopic(partition_topic(name, index), 0, partition_of=name)
            for index in range(count)
        ]
        steps: list[list[ClientCommand]] = [
            [SetPartitions(name, 0, 0)],
            parts,
            [do.DeleteTopic(name, 0, partition_of=name)],
        ]

        def step(refusal: Value | None) -> None:
            if refusal is not None:
                then(code_of(refusal))
            elif steps:
                self._all(steps.pop(0), step)
            else:
                self._partitions.forget(name)
                then(Code.NONE)

        step(None)

    # -- policies --

    def set_policy(self, name: str, policy: Policy, then: Then) -> None:
        """Set the policy of a topic and of all its partitions."""

        def changed(outcome: Value) -> None:
            if refused(outcome):
                then(outcome)
            elif self._partitions.is_plain(name):
                then(None)
            else:
                self._backend.look(seen, TIMEOUT, topic=name)

        def seen(outcome: Value) -> None:
            views = outcome.topics if isinstance(outcome, View) else ()
            names = self._partitions.names(views[0]) if views else []
            self._all([do.SetPolicy(each, 0, policy) for each in names if each != name], then)

        self._backend.do(do.SetPolicy(name, 0, policy), changed, TIMEOUT)

    def _all(self, commands: list[ClientCommand], then: Then) -> None:
        """Run the commands at the same time. Call `then` with the first refusal, or None."""

        def done(outcomes: tuple[Value, ...]) -> None:
            then(next((each for each in outcomes if refused(each)), None))

        gather = Gather(len(commands), done)
        for number, command in enumerate(commands):
            self._backend.do(command, gather.slot(number), TIMEOUT)


class Answer:
    """Answers for one topic."""

    def __init__(self, name: str, then: Callable[[m.TopicError], None]) -> None:
        self.name, self._then = name, then

    def __call__(self, code: Code, message: str | None = None) -> None:
        self._then(m.TopicError(name=self.name, error_code=code, error_message=clipped(message)))


def answering(name: str, then: Callable[[m.TopicError], None]) -> Answer:
    return Answer(name, then)


def created(answer: Answer) -> Callable[[Value], None]:
    """Return the callback for the outcome of CreateTopic."""

    def then(outcome: Value) -> None:
        if refused(outcome):
            answer(code_of(outcome), str(outcome))
        elif getattr(outcome, "already", False):
            answer(Code.TOPIC_ALREADY_EXISTS, f"topic {answer.name!r} already exists")
        else:
            answer(Code.NONE)

    return then


def partitions_of(name: str, indexes: range, policy: Policy) -> list[ClientCommand]:
    """Return the commands that create these partitions."""
    return [
        do.CreateTopic(partition_topic(name, index), 0, policy, partition_of=name)
        for index in indexes
    ]


def growth_fault(view: TopicView | None, count: int) -> str:
    """Return why a topic cannot grow to this number of partitions, or an empty string."""
    if view is None:
        return ""
    if not view.partitions:
        return "the topic was created with one partition, so it cannot get more"
    if not view.partitions < count <= PARTITIONS_MAX:
        return f"the topic has {view.partitions} partitions (limit {PARTITIONS_MAX}), not {count}"
    return ""
