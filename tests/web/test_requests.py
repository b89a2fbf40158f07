"""Requests to an application that talks to a node (WEB-1)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from oncecast.web import Limits
from tests.client.serving import run
from tests.web.calling import HOST, Caller, calling

pytestmark = pytest.mark.long

KEEP = {"keep_all": True}


async def made(call: Caller, topic: str, *texts: str) -> None:
    """Create a topic that keeps these messages."""
    assert (await call("PUT", f"/topics/{topic}", KEEP)).status == 201
    for each in texts:
        assert (await call("POST", f"/topics/{topic}/messages", one(each))).status == 200


def one(text: str) -> dict[str, object]:
    return {"messages": [{"text": text}]}


def test_topic_is_created_changed_and_deleted(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            created = await call("PUT", "/topics/a%2Fb", KEEP)
            assert (created.status, created.json) == (201, {"name": "a/b", "created": True})
            assert (await call("PUT", "/topics/a%2Fb", KEEP)).status == 200
            other = await call("PUT", "/topics/a%2Fb", {})
            assert (other.status, other.json["code"]) == (409, "topic-exists")
            changed = await call("PATCH", "/topics/a%2Fb", {"keep_all": False, "age": 60})
            assert (changed.json["keep_all"], changed.json["age"]) == (False, 60.0)
            shown = await call("GET", "/topics/a%2Fb")
            assert (shown.json["name"], shown.json["policy"]["age"]) == ("a/b", 60.0)
            assert (await call("DELETE", "/topics/a%2Fb")).status == 204
            gone = await call("DELETE", "/topics/a%2Fb")
            assert (gone.status, gone.json["code"]) == (404, "no-such-topic")

    run(work())


def test_repeated_put_of_a_producer_is_stored_once(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            await made(call, "t")
            headers = {"oncecast_producer": "p"}
            path = "/topics/t/messages"
            for stored in (True, False):
                put = await call("POST", path, one("a"), oncecast_sequence="0", **headers)
                assert (put.json["offset"], put.json["stored"]) == (0, stored)
            gap = await call("POST", path, one("c"), oncecast_sequence="2", **headers)
            assert (gap.status, gap.json["code"], gap.json["expected"]) == (409, "gap", 1)
            await call("POST", path, one("b"), oncecast_sequence="1", **headers)
            found = await call("GET", path)
            assert [each["text"] for each in found.json["messages"]] == ["a", "b"]
            alone = await call("POST", path, one("d"), **headers)
            assert (alone.status, alone.json["code"]) == (422, "invalid-argument")

    run(work())


def test_browse_pages_searches_and_truncates_without_a_subscription(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            await made(call, "t", "tea", "cup", "teapot", "milk")
            path = "/topics/t/messages"
            first = (await call("GET", path + "?limit=3")).json
            assert [each["offset"] for each in first["messages"]] == [0, 1, 2]
            assert (first["next"], first["first"], first["end"]) == (3, 0, 4)
            rest = (await call("GET", path + "?from=3")).json
            assert ([each["text"] for each in rest["messages"]], rest["next"]) == (["milk"], None)
            last = (await call("GET", path + "?from=-2&value_bytes=3")).json["messages"]
            assert [(each["text"], each["size"]) for each in last] == [("tea", 6), ("mil", 4)]
            found = (await call("GET", path + "?search=tea")).json
            assert [each["offset"] for each in found["messages"]] == [0, 2]
            assert found["scanned"] == 4
            alone = await call("GET", path + "/2")
            assert alone.json["text"] == "teapot"
            raw = await call("GET", path + "/2", accept="application/octet-stream")
            assert raw.data == b"teapot"
            beyond = await call("GET", path + "?from=9")
            assert (await call("GET", "/subscriptions")).json["subscriptions"] == []
            assert beyond.json["messages"] == []

    run(work())


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path, Limits(body_bytes=1000)) as call:
            await made(call, "t")
            refused = {
                ("GET", "/topics?limit=0"): 400,
                ("GET", "/topics?limit=x"): 400,
                ("GET", "/topics?limit=1&limit=2"): 400,
                ("GET", "/topics?wrong=1"): 400,
                ("GET", "/topics/%ff"): 400,
                ("GET", "/nothing"): 404,
                ("GET", "/topics/none/messages"): 404,
                ("GET", "/topics/none/tail"): 404,
                ("GET", "/ring"): 404,
                ("POST", "/topics"): 405,
                ("GET", "/topics/t/messages/7"): 404,
            }
            for (method, path), status in refused.items():
                reply = await call(method, path)
                assert (reply.status, reply.json["status"]) == (status, status), path
            large = await call("POST", "/topics/t/messages", one("x" * 2000))
            assert (large.status, large.json["code"]) == (413, "body-too-large")
            wrong = await call("POST", "/topics/t/messages", {"messages": []})
            assert (wrong.status, wrong.json["code"]) == (400, "bad-request")
            other = await call.raw("GET", "/api/v1/topics", {"host": "evil.example"})
            assert (other.status, other.json["code"]) == (421, "wrong-host")
            cross = await call.raw("DELETE", "/api/v1/topics/t", {"host": HOST})
            assert (cross.status, cross.json["code"]) == (403, "cross-site")

    run(work())


def test_overview_and_cluster_show_the_node(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            await made(call, "t", "a")
            overview = (await call("GET", "/overview")).json
            assert (overview["healthy"], overview["topics"], overview["messages"]) == (True, 1, 1)
            group = (await call("GET", "/cluster")).json["groups"][0]
            assert [each["leader"] for each in group["replicas"]] == [True]
            topics = (await call("GET", "/topics?search=T")).json
            assert [each["name"] for each in topics["topics"]] == ["t"]

    run(work())


def test_exclusive_get_repeats_messages_until_they_are_acknowledged(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            await made(call, "t", "a", "b", "c")
            path = "/topics/t/subscriptions/s"
            assert (await call("PUT", path, {"start": "earliest"})).status == 201
            early = await call("POST", path + "/ack", {"offset": 0})
            assert (early.status, early.json["code"]) == (409, "fenced")
            got = (await call("POST", path + "/get?limit=2")).json
            assert [each["text"] for each in got["messages"]] == ["a", "b"]
            again = (await call("POST", path + "/get?limit=3")).json
            flags = [(each["text"], each["redelivered"]) for each in again["messages"]]
            assert flags == [("a", True), ("b", True), ("c", False)]
            assert (await call("POST", path + "/ack", {"offset": 1})).json == {"cursor": 2}
            rest = (await call("POST", path + f"/get?epoch={got['epoch']}")).json
            assert [each["text"] for each in rest["messages"]] == ["c"]
            await call("POST", path + "/get?take_over=true")
            late = await call("POST", path + "/ack", {"offset": 2, "epoch": got["epoch"]})
            assert (late.status, late.json["code"]) == (409, "fenced")
            assert (await call("POST", path + "/seek", {"offset": 0})).json == {"cursor": 0}
            assert (await call("DELETE", path)).status == 204

    run(work())


def test_shared_get_hands_out_jobs_that_are_settled_by_token(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            await made(call, "t", "a", "b", "c")
            path = "/topics/t/subscriptions/w"
            await call("PUT", path, {"start": "earliest", "shared": {"deliveries_max": 1}})
            jobs = (await call("POST", path + "/get?limit=3&wait=5")).json["jobs"]
            assert [each["message"]["text"] for each in jobs] == ["a", "b", "c"]
            named = [{"token": e["token"], "offset": e["message"]["offset"]} for e in jobs]
            settle = {"accept": [named[0]], "reject": [{**named[1], "reason": "broken"}]}
            assert (await call("POST", path + "/settle", settle)).json["settled"] == 2
            repeated = (await call("POST", path + "/settle", {"accept": [named[0]]})).json
            assert repeated == {"settled": 0, "lost": [named[0]]}
            renewed = (await call("POST", path + "/settle", {"renew": [named[2]]})).json
            assert renewed["settled"] == 1
            dead = "/topics/%7Bt%7D.dead.w/subscriptions/wait"
            await call("PUT", dead, {"start": "earliest"})
            assert (await call("POST", dead + "/get?wait=10")).json["end"] == 1
            letter = (await call("GET", path + "/dead")).json["letters"][0]
            assert (letter["reason"], letter["detail"]) == ("rejected", "broken")
            dropped = await call("POST", path + "/dead/drop", {"all": True})
            assert dropped.json == {"count": 1}

    run(work())


def test_responses_forbid_scripts_frames_and_caching(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            reply = await call("GET", "/topics")
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
            assert reply.headers["cache-control"] == "no-store"
            missing = await call.raw("GET", "/%2e%2e/app.py", {"host": HOST})
            assert missing.status == 404

    run(work())


def test_subscriptions_are_listed_page_by_page(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            wanted = [(topic, name) for topic in ("a", "b/c", "d") for name in ("s", "u")]
            for topic, name in wanted:
                await call("PUT", f"/topics/{topic.replace('/', '%2F')}/subscriptions/{name}")
            found: list[tuple[str, str]] = []
            after = ""
            while after is not None:
                page = (await call("GET", f"/subscriptions?limit=2&after={after}")).json
                found += [(each["topic"], each["name"]) for each in page["subscriptions"]]
                after = page["next"] and quote(page["next"], safe="")
            assert found == wanted
            one_topic = (await call("GET", "/subscriptions?topic=d")).json["subscriptions"]
            assert [each["name"] for each in one_topic] == ["s", "u"]

    run(work())


def test_partitioned_topic_is_listed_once_with_the_sums_over_its_partitions(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        async with calling(tmp_path) as call:
            assert (await call("PUT", "/topics/t?partitions=3", KEEP)).status == 201
            for number in (0, 2):
                path = f"/topics/t%23{number}/messages"
                assert (await call("POST", path, one("a"))).status == 200
            (topic,) = (await call("GET", "/topics")).json["topics"]
            assert (topic["name"], topic["partitions"], topic["end"]) == ("t", 3, 2)
            part = (await call("GET", "/topics/t%232")).json
            assert (part["partition_of"], part["end"]) == ("t", 1)
            refused = await call("GET", "/topics/t/messages")
            assert (refused.status, refused.json["code"]) == (409, "partitioned")

    run(work())
