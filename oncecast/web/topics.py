"""Handlers for topics and for the overview."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from oncecast.errors import InvalidArgument, NoSuchTopic, OncecastError
from oncecast.web import shapes
from oncecast.web.exchange import Answer, Call
from oncecast.web.views import (
    policy_of,
    policy_shape,
    subscription_shape,
    topic_details,
    topic_shape,
)
from oncecast.wire.frames import TopicView
from oncecast.wire.retention import DEFAULT

SHOWN_MAX = 1000  # maximum subscriptions in the details of a topic
TOGETHER = 16  # maximum topics that are described concurrently
PAGES_MAX = 20  # maximum pages of topics that one request for subscriptions walks through
PAGE = 500  # topics in each of these pages


async def listed(call: Call) -> shapes.Topics:
    """List topics. Without a search, one page from the node is enough."""
    search, limit = call["search"].lower(), call["limit"]
    count = await call.session.census.count()
    if search or count.whole:
        found = [
            each
            for name, each in count.topics.items()
            if name > call["after"] and name.startswith(call["prefix"]) and search in name.lower()
        ]
        views = found[: limit + 1] if count.whole else await described(call, found[: limit + 1])
        more = len(views) > limit
        views = views[:limit]
    else:
        view = await call.session.backend.topics(
            prefix=call["prefix"], after=call["after"], limit=limit, subscriptions=True
        )
        views, more = [*view.topics], view.more
    following = views[-1].name if more and views else None
    return shapes.Topics(topics=await shown(call, views), next=following)


async def shown(call: Call, views: list[TopicView]) -> list[shapes.TopicShape]:
    """Return the topics without their partitions, whose counts are in the topic's own."""
    own = [each for each in views if not each.partition_of]
    sums = await described(call, [each for each in own if each.partitions])
    folded = {each.name: each for each in sums}
    return [topic_shape(folded.get(each.name, each), rate_of(call, each.name)) for each in own]


def rate_of(call: Call, topic: str) -> float | None:
    count = call.session.census.last
    return count.rates.get(topic) if count is not None else None


async def described(call: Call, views: list[TopicView]) -> list[TopicView]:
    """Return the topics with their subscriptions, without those that were deleted meanwhile."""
    found: list[TopicView] = []
    for at in range(0, len(views), TOGETHER):
        asked = (call.session.backend.describe(each.name) for each in views[at : at + TOGETHER])
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, TopicView):
                found.append(outcome)
            elif not isinstance(outcome, NoSuchTopic):
                raise outcome
    return found


async def described_one(call: Call) -> shapes.TopicDetails:
    view = await call.session.backend.describe(call.topic)
    partitions = await call.client.partitions(call.topic) if view.partitions else []
    return topic_details(view, rate_of(call, call.topic), SHOWN_MAX, partitions)


async def created(call: Call) -> Answer:
    policy = policy_of(call.body or shapes.PolicyBody(), DEFAULT)
    new = await call.client.create_topic(call.topic, policy, partitions=call["partitions"])
    call.session.census.forget()
    return Answer(201 if new else 200, shapes.Created(name=call.topic, created=new))


async def changed(call: Call) -> shapes.PolicyShape:
    view = await call.session.backend.describe(call.topic)
    policy = policy_of(call.body, view.policy)
    await call.client.set_policy(call.topic, policy)
    return policy_shape(policy)


async def deleted(call: Call) -> None:
    if not await call.client.delete_topic(call.topic):
        raise NoSuchTopic(call.topic)
    call.session.census.forget()


# Subscriptions, of which the topics are the first part of the key


async def subscriptions(call: Call) -> shapes.Subscriptions:
    topic, limit = call["topic"], call["limit"]
    after_topic, after_name = parted(call["after"])
    if topic is not None:
        views = [await call.session.backend.describe(topic)]
        return page_of(views, after_topic, after_name, limit, None)
    count = await call.session.census.count()
    if count.whole:  # a ring, which no single node can list
        views = [count.topics[name] for name in sorted(count.topics) if name >= after_topic]
        return page_of(views, after_topic, after_name, limit, None)
    found: list[TopicView] = []
    after, total = after_topic, 0
    if after_topic:
        with suppress(NoSuchTopic):
            found.append(await call.session.backend.describe(after_topic))
    for _ in range(PAGES_MAX):
        view = await call.session.backend.topics(after=after, limit=PAGE, subscriptions=True)
        found += [each for each in view.topics if each.subscriptions]
        total += sum(len(each.subscriptions) for each in view.topics)
        if not view.more or not view.topics:
            return page_of(found, after_topic, after_name, limit, None)
        after = view.topics[-1].name
        if total > limit:
            break
    return page_of(found, after_topic, after_name, limit, after)


def page_of(
    views: list[TopicView], topic: str, name: str, limit: int, last: str | None
) -> shapes.Subscriptions:
    """Return the subscriptions after `name` of `topic`. More topics may follow after `last`."""
    every = [
        (view.name, each)
        for view in views
        for each in view.subscriptions
        if (view.name, each.name) > (topic, name)
    ]
    chosen = every[:limit]
    following = None if last is None else joined(last, "\U0010ffff")
    if len(every) > limit:
        following = joined(chosen[-1][0], chosen[-1][1].name)
    return shapes.Subscriptions(
        subscriptions=[subscription_shape(where, each) for where, each in chosen], next=following
    )


def joined(topic: str, name: str) -> str:
    return f"{len(topic)}:{topic}{name}"


def parted(after: str) -> tuple[str, str]:
    """Return the topic and the name in a `next` of an earlier page."""
    if not after:
        return "", ""
    length, colon, rest = after.partition(":")
    if not colon or not (length.isascii() and length.isdecimal()) or len(length) > 4:
        raise InvalidArgument(f"after is {after!r:.80}", "use the value of `next`")
    return rest[: int(length)], rest[int(length) :]


async def known(call: Call, topic: str, name: str) -> shapes.SubscriptionShape:
    return subscription_shape(topic, await call.session.backend.subscription(topic, name))


async def overview(call: Call) -> shapes.Overview:
    client, count = call.client, await call.session.census.count()
    ring = await client.ring()
    nodes, leader, level, quorum = len(ring.processes), "", 0, False
    if ring.processes:
        quorum = all(each.leader for each in ring.groups if each.low)
        version = next((p.version for p in ring.processes if p.process == ring.node), "")
    else:
        group = await client.group()
        leader, level, quorum = group.leader, group.level, group.quorum
        nodes = len(group.members)
        version = ""
        with suppress(OncecastError):
            version = (await call.session.backend.topics(limit=1)).version
    return shapes.Overview(
        healthy=quorum and (bool(leader) or bool(ring.processes)),
        node=ring.node,
        version=version,
        level=level,
        user=call.session.user,
        leader=leader,
        quorum=quorum,
        ring=bool(ring.processes),
        nodes=nodes,
        processes=max(nodes, 1),
        topics=len(count.topics),
        subscriptions=count.subscriptions,
        messages=count.messages,
        bytes=count.bytes,
        puts_per_second=count.puts_rate,
        bytes_per_second=count.bytes_rate,
        age=asyncio.get_running_loop().time() - count.at,
        disk=None,
        tails=call.hub.tails,
        sessions=len(call.hub.sessions),
    )
