"""WEB-3: the page plays a recording in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from oncecast.lab.scenarios.catalogue import SCENARIOS
from oncecast.lab.scenarios.scenario import run
from oncecast.playback import histories
from oncecast.playback.packing import pack
from oncecast.playback.page_writer import html
from oncecast.playback.recorder import Recorder
from oncecast.playback.recording import Recording
from oncecast.replication.values import Values
from tests.browser import Tab, browser, tab
from tests.mutants import replaced
from tests.playback.test_histories import lost_put

pytestmark = pytest.mark.long

SEED = 152  # of a storm in which a restart keeps the first of two values for a slot
RULE = "if slot in self.items and not self._may_hold_more():\n        return"


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def violation(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a file with a violation that a mutant has caused."""
    with pytest.MonkeyPatch.context() as patch:
        replaced(Values, "found", "self.let_go(slot)", RULE)(patch)
        recorder = Recorder()
        run(SCENARIOS["paxos"], SEED, make=recorder.simulation, caught=recorder.caught)
    recording = recorder.finished()
    recording.title = f"paxos, seed {SEED}"
    return written(tmp_path_factory.mktemp("pages") / "violation.html", recording)


def written(path: Path, recording: Recording) -> str:
    page = html(pack(recording), recording.title)
    assert len(page) < 5_000_000
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


def ready(shown: Tab, address: str) -> Page:
    shown.page.goto(address)
    shown.page.wait_for_selector('body[data-ready="true"]')
    return shown.page


def row(page: Page) -> int:
    return int(page.evaluate("window.playback.cursor.row"))


def settled(page: Page) -> None:
    """Wait until the panel shows the cursor."""
    until(page, "!window.playback.dirty && !window.playback.late")


def until(page: Page, condition: str) -> None:
    """Wait for a condition. The page's policy forbids the browser's own way to poll one."""
    page.evaluate(
        f"""() => new Promise((done) => {{
          const look = () => ({condition}) ? done() : requestAnimationFrame(look);
          look();
        }})"""
    )


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_violation_is_shown_with_its_causes(
    opened: Browser, violation: str, theme: str, width: int
) -> None:
    """WEB-3"""
    with tab(opened, theme, width) as shown:
        page = ready(shown, violation)
        assert "promise broken" in page.inner_text("#verdict")
        assert "differ from the chosen values" in page.inner_text("#alert-text")
        page.click("#alert-go")
        settled(page)
        chain = page.locator("#pane-causes ol.chain").first.locator("button")
        assert chain.all_inner_texts()[-1].split()[:3] == ["2.4836", "n1", "start"]
        page.locator("#pane-causes ul.related button").first.click()
        assert row(page) == page.evaluate("window.playback.model.header.violation.related[0]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.errors == []


def test_keyboard_steps_plays_and_searches(opened: Browser, violation: str) -> None:
    """WEB-3"""
    with tab(opened) as shown:
        page = ready(shown, violation)
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert row(page) == 2
        page.keyboard.press("ArrowLeft")
        assert row(page) == 1
        page.keyboard.press("Space")
        until(page, "window.playback.cursor.time > 0")
        page.keyboard.press("Space")
        assert not page.evaluate("window.playback.playing")
        page.keyboard.press("/")
        page.keyboard.type("node:n1 type:Accept")
        page.keyboard.press("Enter")
        until(page, "window.playback.hits.length > 0")
        settled(page)
        texts = page.locator("#steps .row:not([hidden])").all_inner_texts()
        assert texts
        assert all("n1" in text and "Accept ←" in text for text in texts)
        page.keyboard.press("Escape")
        until(page, "window.playback.list.rows === null")
        page.keyboard.press("v")
        assert row(page) == page.evaluate("window.playback.model.header.violation.step")
        assert shown.errors == []


def test_time_line_is_dragged_and_nodes_are_chosen(opened: Browser, violation: str) -> None:
    """WEB-3"""
    with tab(opened) as shown:
        page = ready(shown, violation)
        box = page.locator("#timeline").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 80, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        page.mouse.up()
        middle = page.evaluate("window.playback.cursor.time / window.playback.model.end")
        assert 0.4 < middle < 0.6
        place = page.evaluate(
            "window.playback.stage.place(window.playback.model.nodes.indexOf('n0'))"
        )
        page.locator("#stage").click(position={"x": place["x"], "y": place["y"]})
        page.wait_for_selector("#pane-node h3:text-is('n0')")
        assert "promised ballot" in page.inner_text("#pane-node")
        assert shown.errors == []


def test_state_on_the_page_is_the_state_of_the_run(opened: Browser, violation: str) -> None:
    """WEB-3"""
    with tab(opened) as shown:
        page = ready(shown, violation)
        end = page.evaluate(
            """() => {
              const { model, cursor } = window.playback;
              const n0 = model.nodes.indexOf("n0"), n1 = model.nodes.indexOf("n1");
              const at = (node, slot) => model.vote(node, slot, cursor.row);
              const state = (key) => model.state(n1, key, cursor.row);
              return { applied: state("applied"), up: state("up"),
                same: [24, 25].map((slot) => at(n0, slot)?.checksum === at(n1, slot)?.checksum) };
            }"""
        )
        assert end == {"applied": 25, "up": 1, "same": [True, True]}


def test_counterexample_of_a_history_is_drawn(opened: Browser, tmp_path: Path) -> None:
    """WEB-3"""
    from oncecast.history.check import check

    history = lost_put()
    recording = histories.record("ann.jsonl", history, check(history).broken)
    with tab(opened, "dark") as shown:
        page = ready(shown, written(tmp_path / "history.html", recording))
        assert "the topic has other messages" in page.inner_text("#pane-causes")
        drawn = page.evaluate(
            "window.playback.lanes.drawn.map((each) => window.playback.lanes.text(each.at))"
        )
        assert "ann: put [a] → offset 0" in drawn
        assert shown.errors == []


def test_damaged_recording_is_reported(opened: Browser, tmp_path: Path) -> None:
    """WEB-3"""
    path = tmp_path / "damaged.html"
    path.write_text(html(b"nonsense", "damaged"), encoding="utf-8")
    with tab(opened) as shown:
        shown.page.goto(path.as_uri())
        shown.page.wait_for_selector('body[data-ready="false"]')
        assert shown.page.inner_text("h1") == "This recording cannot be played"
