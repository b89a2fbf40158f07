"""Use each page and action of the console in Chromium, as a person would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

import oncecast
from oncecast.errors import NoSuchTopic
from tests.browser import browser
from tests.web.console import (
    ALONE,
    HOSTILE,
    LOOKS,
    Console,
    Site,
    console,
    look,
    unreachable,
)

pytestmark = pytest.mark.long

TOPICS = 130  # more than a page
ORDERS = 120
PAGES = {
    "overview": ((), {}),
    "messages": (("topics", "orders"), {}),
    "hostile": (("topics", HOSTILE), {}),
    "topic subscriptions": (("topics", "orders"), {"tab": "subscriptions"}),
    "settings": (("topics", "orders"), {"tab": "settings"}),
    "subscriptions": (("subscriptions",), {}),
    "shared": (("topics", "emails", "subscriptions", "sender"), {}),
    "exclusive": (("topics", "orders", "subscriptions", "billing"), {}),
    "cluster": (("cluster",), {}),
    "tail": (("tail",), {"topic": "orders"}),
    "no tail": (("tail",), {}),
    "unknown": (("nowhere",), {}),
}


async def fill(client: oncecast.Client) -> None:
    """Put what the tests look at: orders, dead letters, hostile names, and many topics."""
    await client.create_subscription("orders", "billing", start=oncecast.EARLIEST)
    await client.put_many("orders", [json.dumps({"order": n}).encode() for n in range(ORDERS)])
    await client.create_subscription(HOSTILE, ALONE, start=oncecast.EARLIEST)
    for value in (b"<script>document.title = 2</script>\x1b[31m", bytes(range(256)), b"y" * 5000):
        await client.put(HOSTILE, value, key=b'k"<>', headers={"a<b": b"\xff"})
    for number in range(TOPICS):
        await client.create_topic(f"tenant-{number:03d}", oncecast.Policy(keep_all=True))
    await bury(client, [b"no address", b"broken", b"late"])


async def bury(client: oncecast.Client, values: list[bytes]) -> None:
    """Make dead letters of the subscription `sender`."""
    async with await client.work("emails", "sender") as jobs:
        await client.put_many("emails", values)
        for _ in values:
            job = await jobs.get(timeout=10)
            assert job is not None
            job.reject("no @ in <b>the</b> address")
        await jobs.flush()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("console")) as site:
        site.run(fill(site.client))
        yield site


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(chromium: Browser, site: Site) -> Iterator[Console]:
    with console(chromium, site.url) as opened:
        yield opened


@pytest.fixture
def tab(shared: Console) -> Iterator[Console]:
    """Return the tab that the tests share. Each test must leave it without errors."""
    yield shared
    errors, shared.errors = shared.errors, []
    assert errors == []


# Looks


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_each_page_is_readable_and_reachable_with_the_keyboard(
    chromium: Browser, site: Site, theme: str, width: int
) -> None:
    """WEB-2: no error, no horizontal scrolling, contrast AA, visible focus."""
    with console(chromium, site.url, theme, width) as tab:
        for name, (parts, query) in PAGES.items():
            page = tab.open(*parts, **query)
            expect(page.locator(".loading")).to_have_count(0)
            assert not look(page, "wider"), name
            assert look(page, "contrast") == [], name
            if width > 1000:
                assert unreachable(page) == [], name
        assert tab.errors == []


def test_theme_follows_the_system_until_it_is_chosen(chromium: Browser, site: Site) -> None:
    """WEB-2"""
    paper = "() => getComputedStyle(document.body).backgroundColor"
    with console(chromium, site.url, "dark") as tab:
        page = tab.open()
        dark = page.evaluate(paper)
        page.get_by_role("button", name="Change the theme").click()
        light = page.evaluate(paper)
        assert light != dark
        page.reload()
        page.wait_for_selector("main h1")
        assert page.evaluate(paper) == light


def test_keyboard_shortcuts_move_between_pages(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("cluster")
    page.keyboard.type("gt")
    expect(page.locator("h1")).to_have_text("Topics")
    expect(page.locator("h1")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("g?")  # a letter in a field is not a shortcut
    expect(page.get_by_label("Search topics")).to_have_value("g?")
    page.keyboard.press("Tab")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("n")
    expect(page.get_by_role("dialog", name="Create topic")).to_be_visible()
    page.keyboard.press("Escape")


# Pages


def test_overview_shows_counts_and_what_needs_attention(tab: Console) -> None:
    """WEB-2"""
    page = tab.open(expect=".strip")
    expect(page.locator(".health .badge")).to_have_text("Healthy")
    expect(page.locator(".strip div", has_text="Topics").locator("dd")).to_have_text("134")
    expect(page.locator(".strip div", has_text="Lag").locator("dd")).to_have_text("123")
    expect(page.get_by_role("region", name="Replicas")).to_contain_text("leader")
    expect(page.locator("figure.chart")).to_have_count(4)
    page.get_by_role("link", name="See them").click()
    expect(page.locator("h1")).to_have_text("sender")


def test_topics_are_searched_and_paged(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("topics", expect="tbody tr")
    expect(page.locator("tbody tr")).to_have_count(100)
    expect(page.locator(".pager")).to_contain_text("1–100 of 134")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("tbody tr")).to_have_count(34)
    page.get_by_role("button", name="Previous").click()
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_label("Search topics").fill("NANT-07")
    expect(page.locator("tbody tr")).to_have_count(10)
    assert "search=NANT-07" in page.url
    page.get_by_label("Search topics").fill("no such topic")
    tab.says("No topic contains “no such topic”.")


def test_messages_are_browsed_searched_and_shown_as_json_or_hex(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("topics", "orders", expect=".message")
    expect(page.locator(".message")).to_have_count(50)
    expect(page.locator(".message .offset").first).to_have_text("119")
    page.get_by_role("button", name="Older").click()
    expect(page.locator(".message .offset").first).to_have_text("69")
    page.get_by_role("button", name="Oldest").click()
    expect(page.locator(".message .offset").last).to_have_text("0")
    page.locator(".message-head").first.click()
    expect(page.locator(".message-detail pre")).to_have_text('{\n  "order": 49\n}')
    page.get_by_label("Start at offset").fill("7")
    page.get_by_label("Start at offset").press("Enter")
    expect(page.locator(".message .offset").last).to_have_text("7")
    page.get_by_label("Search keys and values").fill("11}")
    expect(page.locator(".message .offset")).to_have_text(["111", "11"])
    page.get_by_role("button", name="Hex").click()
    expect(page.locator(".message .value").first).to_have_text(re.compile("^7b 22 6f"))
    page.get_by_role("button", name="Auto").click()


def test_hostile_names_and_payloads_stay_text(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("topics", HOSTILE, expect=".message")
    expect(page.locator("h1")).to_have_text(HOSTILE.replace("\u202e", "\\u202e"))
    for head in page.locator(".message-head").all():
        head.click()
    expect(page.locator(".message-detail .headers").first).to_contain_text("a<b")
    expect(page.locator(".message-detail pre").first).to_have_text('k"<>')
    # The list loads only the start of a long value.
    assert (
        page.locator("pre").evaluate_all("all => all.map(each => each.textContent.length)")[1]
        == 5000
    )
    tab.open("subscriptions", expect="tbody tr")
    tab.says(ALONE)
    assert page.locator("main img, main script, main b b").count() == 0
    assert page.title() == "Subscriptions · oncecast"


def test_partitions_of_a_topic_are_listed(tab: Console, site: Site) -> None:
    """WEB-2 PART-1"""
    site.run(site.client.create_topic("split", oncecast.Policy(keep_all=True), partitions=3))
    site.run(site.client.put("split#1", b"here"))
    page = tab.open("topics", "split", expect="tbody tr")
    expect(page.locator("tbody tr")).to_have_text([re.compile(f"^split#{n}") for n in range(3)])
    expect(page.get_by_role("button", name="Put a message")).to_have_count(0)
    page.get_by_role("link", name="split#1").click()
    expect(page.locator(".message .value")).to_have_text(["here"])
    site.run(site.client.delete_topic("split"))


def test_disk_space_is_shown_if_it_is_known(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("nowhere")

    def with_disk(route: Route) -> None:
        disk = {"used": 95 << 30, "free": 5 << 30, "total": 100 << 30}
        route.fulfill(json={**route.fetch().json(), "disk": disk})

    page.route("**/overview", with_disk)
    tab.open()
    expect(page.get_by_role("region", name="Disk")).to_contain_text("5 GiB")
    expect(page.locator(".attention")).to_contain_text("Only 5 GiB of disk space is free.")
    page.unroute("**/overview")


def test_cluster_shows_members_and_no_ring(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("cluster", expect=".member")
    expect(page.locator(".member")).to_have_count(1)
    expect(page.locator(".member")).to_contain_text("leader")
    assert page.locator(".tabs").count() == 0


# Actions


def test_message_is_put_once(tab: Console, site: Site) -> None:
    """WEB-2: a lost answer does not put the message twice."""
    page = tab.open("topics", "tenant-001", expect=".empty")
    lost: list[str] = []

    def lose_first(route: Route) -> None:
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch().text())  # the node stores the message
            route.abort()
        else:
            route.continue_()

    page.route("**/messages", lose_first)
    page.get_by_role("button", name="Put a message").click()
    page.get_by_role("textbox", name="Value").fill('{"n": 1}')
    page.get_by_label("Key", exact=True).fill("Größe")
    page.get_by_text("Headers, delay and time to live").click()
    page.get_by_label("Headers", exact=True).fill("trace: 4bf9\nuser: ann")
    page.get_by_role("button", name="Put", exact=True).click()
    expect(page.locator(".message")).to_have_count(1)
    page.unroute("**/messages")
    assert lost
    tab.errors.clear()  # the browser reports the lost answer

    async def stored() -> list[oncecast.Message]:
        found = []
        async for part in site.client.scan("tenant-001", oncecast.EARLIEST):
            found += part.messages()
        return found

    (message,) = site.run(stored())
    assert (message.value, message.key) == (b'{"n": 1}', "Größe".encode())
    assert message.headers == {"trace": b"4bf9", "user": b"ann"}


def test_invalid_message_is_refused_with_a_remedy(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("topics", "tenant-002", expect=".empty")
    page.keyboard.press("n")
    page.get_by_role("dialog").get_by_role("button", name="Hex").click()
    page.get_by_role("textbox", name="Value").fill("0g")
    page.get_by_role("button", name="Put", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not pairs of hex digits")
    page.get_by_role("button", name="Cancel").click()


def test_put_that_nothing_keeps_says_so(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("topics", "unread", expect=".trouble")
    page.get_by_role("button", name="Put a message").click()
    page.get_by_role("textbox", name="Value").fill("gone")
    page.get_by_role("button", name="Put", exact=True).click()
    tab.says("nothing keeps it")
    tab.errors.clear()  # the topic did not exist before


def test_topic_is_created_changed_and_deleted(tab: Console, site: Site) -> None:
    """WEB-2"""
    name = "new/100% <i>"
    page = tab.open("topics", expect="tbody tr")
    page.keyboard.press("n")
    page.get_by_label("Name", exact=True).fill("x" * 300)
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("alert")).to_contain_text("255")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    expect(page.locator("h1")).to_have_text(name)
    tab.errors.clear()  # the browser reports the refused request

    page.get_by_role("link", name="Settings").click()
    page.locator("select[name=keep]").select_option("limits")
    page.get_by_label("Keep for", exact=True).fill("7")
    page.get_by_label("Unit of keep for").select_option("days")
    page.get_by_role("button", name="Save").click()
    tab.says("The retention policy is saved.")
    assert site.run(site.client.describe(name)).policy.age_us == 7 * 86400 * 10**6

    page.get_by_role("button", name="Delete topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete topic").click()
    expect(dialog.get_by_role("alert")).to_contain_text("differs")
    dialog.get_by_role("textbox").fill(name)
    dialog.get_by_role("button", name="Delete topic").click()
    expect(page.locator("h1")).to_have_text("Topics")
    with pytest.raises(NoSuchTopic):
        site.run(site.client.describe(name))


def test_subscription_is_created_moved_and_deleted(tab: Console, site: Site) -> None:
    """WEB-2"""

    def cursor() -> int:
        views = site.run(site.client.describe("orders")).subscriptions
        return next(each.cursor for each in views if each.name == "audit")

    page = tab.open("topics", "orders", tab="subscriptions", expect="tbody tr")
    page.get_by_role("button", name="Create subscription").click()
    page.get_by_label("Name", exact=True).fill("audit")
    page.get_by_role("dialog").get_by_role("button", name="Create subscription").click()
    page.get_by_role("link", name="audit").click()
    expect(page.locator("h1")).to_have_text("audit")
    expect(page.locator(".strip")).to_contain_text(f"Next offset{ORDERS}")

    page.get_by_role("button", name="Seek").click()
    page.get_by_label("Start at", exact=True).select_option("offset")
    page.get_by_label("Offset", exact=True).fill("100")
    page.get_by_role("button", name="Move the subscription").click()
    expect(page.locator(".strip")).to_contain_text("Next offset100")
    assert cursor() == 100

    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("audit")
    page.get_by_role("button", name="Delete subscription").click()
    expect(page.locator(".tabs [aria-current]")).to_have_text("Subscriptions")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_dead_letters_are_retried_and_dropped(tab: Console, site: Site) -> None:
    """WEB-2"""
    page = tab.open("topics", "emails", "subscriptions", "sender", expect=".letters .message")
    expect(page.locator(".letters .why").first).to_contain_text("no @ in <b>the</b> address")
    page.get_by_label("Select the dead letter at offset 1").check()
    page.get_by_role("button", name="Retry 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.locator(".letters .message")).to_have_count(2)
    expect(page.locator(".strip")).to_contain_text("Lag1")
    page.get_by_label("Select all").check()
    page.get_by_role("button", name="Drop 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_role("region", name="Dead letters")).to_contain_text("No dead letters.")
    assert site.run(site.client.dead_letters("emails", "sender").count()) == 0


def test_tail_shows_new_messages_pauses_and_filters(tab: Console, site: Site) -> None:
    """WEB-2"""
    page = tab.open("tail", topic="tenant-003", expect=".badge.good")
    site.run(site.client.put("tenant-003", b"first <b>"))
    expect(page.locator(".message .value")).to_have_text(["first <b>"])
    page.locator("h1").focus()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    site.run(site.client.put_many("tenant-003", [b"second", b"third"]))
    expect(page.locator(".tail-facts")).to_contain_text("paused, 2 new")
    expect(page.locator(".message")).to_have_count(1)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".message .value")).to_have_text(["third", "second", "first <b>"])
    page.get_by_label("Filter keys and values").fill("SECO")
    expect(page.locator(".message .value")).to_have_text(["second"])
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".message")).to_have_count(0)


def test_looking_takes_no_subscription_over(tab: Console, site: Site) -> None:
    """WEB-2 OPS-3"""

    async def reading() -> oncecast.Subscription:
        return await site.client.subscribe("orders", "billing")

    async def next_offset(reader: oncecast.Subscription) -> int:
        message = await reader.get(timeout=10)
        assert message is not None
        return message.offset

    async def closed(reader: oncecast.Subscription) -> None:
        await reader.close()

    def epoch() -> int:
        (view,) = site.run(site.client.describe("orders")).subscriptions
        return view.epoch

    reader = site.run(reading())
    first, before = site.run(next_offset(reader)), epoch()
    for parts, query in PAGES.values():
        tab.open(*parts, **query)
        expect(tab.page.locator(".loading")).to_have_count(0)
    assert epoch() == before
    assert site.run(next_offset(reader)) == first + 1
    site.run(closed(reader))


# Trouble


def test_missing_topic_is_reported_with_its_remedy(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("topics", "nope", expect=".trouble")
    expect(page.locator(".trouble-message")).to_contain_text("'nope' does not exist")
    expect(page.locator(".trouble-remedy")).to_be_visible()
    tab.errors.clear()  # the browser reports the status 404


def test_lost_server_is_reported_and_found_again(tab: Console) -> None:
    """WEB-2"""
    page = tab.open(expect=".strip")
    page.route("**/api/**", lambda route: route.abort())
    expect(page.locator(".status")).to_have_text("Reconnecting…")
    expect(page.locator(".trouble-message")).to_contain_text("cannot reach its server")
    page.unroute("**/api/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".health .badge")).to_have_text("Healthy")
    tab.errors.clear()


def test_lost_quorum_is_reported(tab: Console) -> None:
    """WEB-2"""
    page = tab.open("nowhere")

    def without_quorum(route: Route) -> None:
        body = {**route.fetch().json(), "healthy": False, "quorum": False, "leader": ""}
        route.fulfill(json=body)

    page.route("**/overview", without_quorum)
    tab.open()
    expect(page.locator(".health .badge")).to_have_text("No quorum")
    expect(page.locator(".attention")).to_contain_text("acknowledges nothing")
    page.unroute("**/overview")


# Modules


def test_event_stream_is_parsed_across_chunks(tab: Console) -> None:
    """WEB-2"""
    tab.open("nowhere")
    script = """({ EventParser }) => {
      const parser = new EventParser();
      const first = [": hi\\n\\nid: 1\\nda", "ta: a\\r", "\\ndata:b\\n\\n"];
      const chunks = [...first, "event: lost\\ndata: {}\\n\\nid: 2\\n"];
      return chunks.flatMap((each) => [...parser.push(each)]);
    }"""
    assert tab.module("events.js", script) == [
        {"id": "1", "data": "a\nb"},
        {"event": "lost", "data": "{}"},
    ]


def test_lost_stream_resumes_after_the_last_event(tab: Console) -> None:
    """WEB-2"""
    tab.open("nowhere")
    script = """async ({ follow }) => {
      const stop = new AbortController();
      const real = window.fetch;
      const asked = [];
      window.fetch = async (url, { headers }) => {
        if (!url.pathname.endsWith("/x")) return real(url, { headers });
        asked.push(headers["Last-Event-ID"] ?? null);
        if (asked.length === 2) throw new TypeError("connection refused");
        if (asked.length === 4) return Response.json({ message: "gone" }, { status: 404 });
        return new Response(`id: ${asked.length * 10}\\ndata: {}\\n\\n`);
      };
      const states = [];
      const onState = (each) => states.push(each);
      await follow("/x", { query: {}, signal: stop.signal, onEvent: () => {}, onState });
      window.fetch = real;
      return [asked, states.at(-1)];
    }"""
    assert tab.module("events.js", script) == [[None, "10", "10", "30"], "failed"]


def test_tail_keeps_a_bounded_number_of_messages(tab: Console) -> None:
    """WEB-2"""
    tab.open("nowhere")
    script = """({ Recent }) => {
      const recent = new Recent();
      for (let n = 0; n < 5000; n += 1) recent.add({ offset: n, value: "" });
      const many = [recent.messages.length, recent.messages[0].offset, recent.seen];
      for (let n = 0; n < 100; n += 1) recent.add({ offset: n, value: "x".repeat(1 << 20) });
      return [...many, recent.messages.length];
    }"""
    assert tab.module("pages/tail.js", script) == [1000, 4000, 5000, 7]


def test_values_are_shown_in_the_form_that_fits(tab: Console) -> None:
    """WEB-2"""
    tab.open("nowhere")
    script = """({ block, fromHex, line }) => {
      const field = (text) => ({ text, value: btoa(unescape(encodeURIComponent(text))) });
      const shown = (text, form) => {
        const found = block(field(text), form);
        return [found.form, found.text];
      };
      return [
        shown('{"a":[1]}'), shown("plain"), shown("a\\u202eb"),
        shown("\\u0000\\u0001"), shown("Az", "hex"),
        line({ text: null, value: btoa("\\xff\\x00") }), fromHex("00 fF"), fromHex("0"),
      ];
    }"""
    assert tab.module("bytes.js", script) == [
        ["json", '{\n  "a": [\n    1\n  ]\n}'],
        ["text", "plain"],
        ["text", "a\\u202eb"],
        ["hex", f"000000  {'00 01':47}  ··"],
        ["hex", f"000000  {'41 7a':47}  Az"],
        "ff 00",
        "AP8=",
        None,
    ]


def test_ring_and_tree_are_laid_out(tab: Console) -> None:
    """WEB-2"""
    tab.open("nowhere")
    assert tab.module("ring.js", "({ share }) => [share('8' + '0'.repeat(63)), share('c')]") == [
        0.5,
        0.75,
    ]
    # From three quarters to one quarter, clockwise over the top.
    path = tab.module("ring.js", "({ arc }) => arc(0.75, 0.25, 100)")
    assert path == "M-100.00 0.00A100 100 0 0 1 -0.00 -100.00A100 100 0 0 1 100.00 -0.00"
    script = """({ grown, layout }) => {
      const nodes = ["a", "b", "c", "d"].map((process) => ({ process, readers: 1 }));
      const pairs = [["a", "b"], ["a", "c"], ["c", "d"], ["c", "b"]];
      const edges = pairs.map(([parent, child]) => ({ parent, child }));
      const { nodes: placed, rows, columns } = layout(grown({ nodes, edges, root: "a" }));
      return [rows, columns, placed.map((each) => [each.node.process, each.depth, each.row])];
    }"""
    assert tab.module("tree.js", script) == [
        2,
        3,
        [["a", 0, 0.5], ["b", 1, 0], ["c", 1, 1], ["d", 2, 1]],
    ]


def test_script_in_the_page_does_not_run(tab: Console) -> None:
    """WEB-2: the security policy forbids inline scripts."""
    page = tab.open("nowhere")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "document.title = 'owned'";
          document.body.append(script);
        }"""
    )
    assert page.title() == "Not found · oncecast"
    assert any("Content Security Policy" in each for each in tab.errors)
    tab.errors.clear()
