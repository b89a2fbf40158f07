"""The coordinator of consumer groups.

Only this front end knows the members. After it restarts, they join again, and their committed
offsets are still there. It is harmless if two front ends coordinate the same group: each commit is
fenced by the epoch of the group's subscription (see `offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oncecast.kafka import messages as m
from oncecast.kafka.backend import code_of, refused
from oncecast.kafka.errors import Code
from oncecast.kafka.gather import Gather
from oncecast.kafka.layout import Body
from oncecast.kafka.membership import Group, State
from oncecast.kafka.offsets import Offsets
from oncecast.kafka.partitions import UNKNOWN_YET, Partitions, kafka_name
from oncecast.kafka.topics import Topics
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire.frames import TopicView

GROUPS_MAX = 10_000
# Maximum bytes of metadata and assignments; up to twice that while members rejoin.
BYTES_MAX = 128 << 20
CONSUMER = "consumer"  # the protocol type of consumer groups
SIMPLE = -1  # the generation of a commit without a group

Reply = Callable[[Any], None]
Handler = Callable[[Any, Reply], None]


class GroupTimer(Value):
    """Timer: check the members of a group."""

    group: str


class Groups:
    def __init__(
        self, host: Protocol, offsets: Offsets, topics: Topics, partitions: Partitions
    ) -> None:
        self._host, self._offsets, self._topics = host, offsets, topics
        self._partitions = partitions
        self._groups: dict[str, Group] = {}
        self._sizes: dict[str, int] = {}  # total bytes of each group
        self._bytes = 0
        self._id = f"{host.rng.getrandbits(64):016x}"  # random id of this front end

    def handlers(self) -> dict[type[Body], Handler]:
        return {
            m.SyncGroupRequest: self.sync,
            m.HeartbeatRequest: self.heartbeat,
            m.LeaveGroupRequest: self.leave,
            m.OffsetCommitRequest: self.commit,
            m.OffsetFetchRequest: self.fetch,
            m.DescribeGroupsRequest: self.describe,
            m.ListGroupsRequest: self.list,
            m.DeleteGroupsRequest: self.delete,
        }

    # -- members --

    def join(
        self,
        request: m.JoinGroupRequest,
        reply: Reply,
        client_id: str,
        host: str,
        version: int,
    ) -> None:
        group = self._groups.get(request.group_id)
        if not request.group_id or self._full(request, group):
            code = Code.GROUP_MAX_SIZE_REACHED if request.group_id else Code.INVALID_GROUP_ID
            reply(m.JoinGroupResponse(error_code=code, member_id=request.member_id))
            return
        if group is None:
            group = self._groups[request.group_id] = Group(request.group_id, self._host.rng)
        group.join(request, reply, self._host.now, client_id, host, version)
        self._set_timer(group)

    def _full(self, request: m.JoinGroupRequest, group: Group | None) -> bool:
        if group is None:
            return len(self._groups) >= GROUPS_MAX or self._bytes >= BYTES_MAX
        known = request.member_id in group.members
        return self._bytes >= BYTES_MAX * (2 if known else 1)

    def sync(self, request: m.SyncGroupRequest, reply: Reply) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            reply(m.SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        else:
            group.sync(request, reply, self._host.now)
            self._set_timer(group)

    def heartbeat(self, request: m.HeartbeatRequest, reply: Reply) -> None:
        group = self._groups.get(request.group_id)
        code = Code.UNKNOWN_MEMBER_ID
        if group is not None:
            code = group.heartbeat(
                request.member_id,
                request.generation_id,
                request.group_instance_id,
                self._host.now,
            )
        reply(m.HeartbeatResponse(error_code=code))

    def leave(self, request: m.LeaveGroupRequest, reply: Reply) -> None:
        group = self._groups.get(request.group_id)
        leaving = request.members or (m.LeavingMember(member_id=request.member_id),)
        left = []
        for each in leaving:
            member = None if group is None else self._find_member(group, each)
            code = Code.NONE
            if group is None or member is None:
                code = Code.UNKNOWN_MEMBER_ID
            else:
                group.remove(member, self._host.now)
            left.append(
                m.LeftMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=code,
                )
            )
        code = Code.NONE if request.members else Code(left[0].error_code)
        reply(m.LeaveGroupResponse(error_code=code, members=tuple(left)))
        if group is not None:
            group.check(self._host.now)
            self._set_timer(group)

    def _find_member(self, group: Group, leaving: m.LeavingMember) -> Any:
        if leaving.member_id or leaving.group_instance_id is None:
            return group.members.get(leaving.member_id)
        found = (e for e in group.members.values() if e.instance == leaving.group_instance_id)
        return next(found, None)

    def timeout(self, timer: GroupTimer) -> None:
        group = self._groups.get(timer.group)
        if group is not None:
            group.check(self._host.now)
            self._set_timer(group)

    def _set_timer(self, group: Group) -> None:
        size = group.bytes
        self._bytes += size - self._sizes.pop(group.name, 0)
        if size:
            self._sizes[group.name] = size
        due = group.next_check()
        if due is not None:
            self._host.later(max(0.0, due - self._host.now), GroupTimer(group.name))
        elif group.state == State.EMPTY:
            del self._groups[group.name]

    # -- offsets --

    def commit(self, request: m.OffsetCommitRequest, reply: Reply) -> None:
        group = self._groups.get(request.group_id)
        code = self._commit_fault(request, group)
        wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]

        def done(codes: tuple[Code, ...]) -> None:
            answers = iter(codes)
            reply(
                m.OffsetCommitResponse(
                    topics=tuple(
                        m.CommittedTopic(
                            name=topic.name,
                            partitions=tuple(
                                m.CommittedPartition(
                                    partition_index=each.partition_index, error_code=next(answers)
                                )
                                for each in topic.partitions
                            ),
                        )
                        for topic in request.topics
                    )
                )
            )

        gather = Gather(len(wanted), done)
        holder = self.holder(request.generation_id)
        for number, (topic, each) in enumerate(wanted):
            then = gather.slot(number)
            if code != Code.NONE:
                then(code)
            elif each.committed_offset < 0:
                then(Code.INVALID_REQUEST)
            else:
                self._commit(request.group_id, holder, topic, each, then)

    def _commit(
        self,
        group: str,
        holder: str,
        topic: str,
        partition: m.CommitPartition,
        then: Callable[[Code], None],
    ) -> None:
        place = self._partitions.place(topic, partition.partition_index)
        if place == UNKNOWN_YET:
            then(Code.COORDINATOR_LOAD_IN_PROGRESS)
        elif isinstance(place, Code):
            then(place)
        else:
            self._offsets.commit(group, holder, place, partition.committed_offset, then)

    def holder(self, generation: int) -> str:
        """Return the name that a generation attaches with."""
        return f"kafka/{self._id}/{generation}"

    def generation_fault(self, request: m.TxnOffsetCommitRequest) -> Code:
        """Return why a member may not commit in a transaction, or NONE."""
        group = self._groups.get(request.group_id)
        if request.generation_id == SIMPLE and not request.member_id:
            return Code.NONE  # an older client, which is fenced by its transactional id only
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        return group.fault_of(request.member_id, request.generation_id, request.group_instance_id)

    def _commit_fault(self, request: m.OffsetCommitRequest, group: Group | None) -> Code:
        if not request.group_id:
            return Code.INVALID_GROUP_ID
        if request.generation_id == SIMPLE and not request.member_id:
            busy = group is not None and group.members
            return Code.UNKNOWN_MEMBER_ID if busy else Code.NONE
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        # A member may commit during a rebalance, because it still has its partitions.
        return group.fault_of(request.member_id, request.generation_id, request.group_instance_id)

    def fetch(self, request: m.OffsetFetchRequest, reply: Reply) -> None:
        if request.topics is None:
            self._fetch_all(request.group_id, reply)
            return
        wanted = [
            (topic.name, each) for topic in request.topics for each in topic.partition_indexes
        ]

        def done(found: tuple[m.FetchedOffset, ...]) -> None:
            answers = iter(found)
            # Clients repeat a request that fails as a whole, and end on other errors.
            retry = Code.COORDINATOR_LOAD_IN_PROGRESS
            reply(
                m.OffsetFetchResponse(
                    error_code=retry if any(e.error_code == retry for e in found) else Code.NONE,
                    topics=tuple(
                        m.FetchedOffsets(
                            name=topic.name,
                            partitions=tuple(next(answers) for _ in topic.partition_indexes),
                        )
                        for topic in request.topics or ()
                    ),
                )
            )

        gather = Gather(len(wanted), done)
        for number, (topic, index) in enumerate(wanted):
            self._fetch_one(request.group_id, topic, index, gather.slot(number))

    def _fetch_one(
        self, group: str, topic: str, index: int, put: Callable[[m.FetchedOffset], None]
    ) -> None:
        def then(offset: int, code: Code) -> None:
            if code == Code.REQUEST_TIMED_OUT:
                code = Code.COORDINATOR_LOAD_IN_PROGRESS
            put(m.FetchedOffset(partition_index=index, committed_offset=offset, error_code=code))

        place = self._partitions.place(topic, index)
        if place == UNKNOWN_YET:
            then(-1, Code.COORDINATOR_LOAD_IN_PROGRESS)
        elif isinstance(place, Code):
            then(-1, Code.NONE)
        else:
            self._offsets.committed(group, place, then)

    def _fetch_all(self, group: str, reply: Reply) -> None:
        def done(views: list[Any] | None) -> None:
            reply(
                m.OffsetFetchResponse(
                    error_code=Code.COORDINATOR_LOAD_IN_PROGRESS if views is None else Code.NONE,
                    topics=tuple(
                        m.FetchedOffsets(name=name, partitions=tuple(offsets))
                        for name, offsets in offsets_of(group, views or ()).items()
                    ),
                )
            )

        self._topics.all(done, subscriptions=True)

    # -- administration --

    def describe(self, request: m.DescribeGroupsRequest, reply: Reply) -> None:
        """Describe groups. A group without members still exists if it has committed offsets."""

        def done(views: Iterable[Any] | None) -> None:
            if views is None:
                code = Code.COORDINATOR_NOT_AVAILABLE
                failed = [m.DescribedGroup(group_id=n, error_code=code) for n in request.groups]
                reply(m.DescribeGroupsResponse(groups=tuple(failed)))
                return
            known = {each.name for view in views for each in view.subscriptions}
            groups = tuple(self._described(name, name in known) for name in request.groups)
            reply(m.DescribeGroupsResponse(groups=groups))

        if all(name in self._groups for name in request.groups):
            done(())
        else:
            self._topics.all(done, subscriptions=True)

    def _described(self, name: str, known: bool) -> m.DescribedGroup:
        group = self._groups.get(name)
        if group is None:
            state, kind = (State.EMPTY, CONSUMER) if known else (State.DEAD, "")
            return m.DescribedGroup(group_id=name, group_state=state, protocol_type=kind)
        return m.DescribedGroup(
            group_id=name,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol,
            members=tuple(
                m.DescribedMember(
                    member_id=each.id,
                    group_instance_id=each.instance,
                    client_id=each.client_id,
                    client_host=each.host,
                    member_metadata=each.protocols.get(group.protocol, b""),
                    member_assignment=each.assignment,
                )
                for each in group.members.values()
            ),
        )

    def list(self, request: m.ListGroupsRequest, reply: Reply) -> None:
        """List the groups that have members or committed offsets."""

        def done(views: Iterable[Any] | None) -> None:
            if views is None:
                code = Code.COORDINATOR_NOT_AVAILABLE
                reply(m.ListGroupsResponse(error_code=code, groups=()))
                return
            names = {name: group.protocol_type for name, group in self._groups.items()}
            for view in views:
                for each in view.subscriptions:
                    names.setdefault(each.name, CONSUMER)
            reply(
                m.ListGroupsResponse(
                    groups=tuple(
                        m.ListedGroup(group_id=name, protocol_type=kind)
                        for name, kind in names.items()
                    )
                )
            )

        self._topics.all(done, subscriptions=True)

    def delete(self, request: m.DeleteGroupsRequest, reply: Reply) -> None:
        """Delete the committed offsets of groups without members."""
        names = request.groups_names

        def done(codes: tuple[Code, ...]) -> None:
            results = zip(names, codes, strict=True)
            reply(
                m.DeleteGroupsResponse(
                    results=tuple(m.DeletedGroup(group_id=n, error_code=c) for n, c in results)
                )
            )

        def found(views: Iterable[Any] | None) -> None:
            gather = Gather(len(names), done)
            for number, name in enumerate(names):
                if views is None:
                    gather.slot(number)(Code.COORDINATOR_NOT_AVAILABLE)
                else:
                    self._delete(name, views, gather.slot(number))

        self._topics.all(found, subscriptions=True)

    def _delete(self, name: str, views: Iterable[Any], then: Callable[[Code], None]) -> None:
        group = self._groups.get(name)
        topics = [
            view.name
            for view in views
            for each in view.subscriptions
            if each.name == name and not view.partitions
        ]
        if group is not None and group.members:
            then(Code.NON_EMPTY_GROUP)
        elif not topics:
            then(Code.GROUP_ID_NOT_FOUND)
        else:
            gather: Gather[Value] = Gather(len(topics), lambda outcomes: then(worst(outcomes)))
            for number, topic in enumerate(topics):
                self._offsets.drop(name, topic, gather.slot(number))


def offsets_of(group: str, views: Iterable[TopicView]) -> dict[str, list[m.FetchedOffset]]:
    """Return the committed offsets of a group, by Kafka topic."""
    found: dict[str, list[m.FetchedOffset]] = {}
    for view in views:
        for each in view.subscriptions:
            if each.name == group and not view.partitions:
                topic, index = kafka_name(view)
                offset = m.FetchedOffset(partition_index=index, committed_offset=each.cursor)
                found.setdefault(topic, []).append(offset)
    return found


def worst(outcomes: tuple[Value, ...]) -> Code:
    """Return the error code of the first refusal, or NONE."""
    return next((code_of(each) for each in outcomes if refused(each)), Code.NONE)
