// The page: reads the recording, connects the controls, and moves the cursor.

import { decode } from "playback/format.js";
import { Lanes } from "playback/lanes.js";
import { Model, seconds } from "playback/model.js";
import { forgetPalette, typeColor } from "playback/palette.js";
import { StepList, element, showCauses, showNode, showStep, summary } from "playback/panel.js";
import { Slots } from "playback/slots.js";
import { Stage } from "playback/stage.js";
import { Timeline } from "playback/timeline.js";

const SPEEDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 50, 100];
const PANEL_EVERY = 90; // milliseconds between updates of the panel while the time changes quickly
const LEGEND_MAX = 9;

const $ = (id) => document.getElementById(id);

class Page {
  constructor(model) {
    this.model = model;
    this.cursor = { time: 0, row: model.rowAt(0) };
    this.view = { node: 0, hovered: 0, hidden: new Set(), tree: "", group: "", focus: [], causes: new Set(), slots: [] };
    this.playing = false;
    this.dirty = true;
    this.panelAt = 0;
    this.hits = [];
    this.actions = {
      seek: (row) => this.seekRow(row),
      find: (query) => this.find(query),
      select: (node) => this.select(node),
    };
    this.makeViews();
    this.fillHeader();
    this.fillLegend();
    this.fillChoices();
    this.connect();
    this.chooseStart();
    requestAnimationFrame((now) => this.frame(now));
  }

  makeViews() {
    const { model, view } = this;
    const hasNodes = model.header.source === "simulation";
    const hasOperations = model.columns["ops.call"].length > 0;
    this.stage = hasNodes ? new Stage($("stage"), model, view) : null;
    this.lanes = hasOperations ? new Lanes($("stage"), model, view) : null;
    this.picture = this.stage || this.lanes;
    this.timeline = new Timeline($("timeline"), model, view);
    this.slots = new Slots($("slots"), model, view);
    const ranks = this.stage ? this.stage.ranks : new Map();
    this.list = new StepList($("steps"), model, view, ranks, this.actions);
    $("slots-card").hidden = !this.slots.replicas.length;
    $("slots").style.height = `${this.slots.height}px`;
    $("timeline").style.height = `${this.timeline.height}px`;
    $("steps").classList.toggle("wide-names", !this.stage);
    if (this.stage && this.lanes) {
      const names = [["Network", this.stage], ["Operations", this.lanes]];
      $("views").replaceChildren(...names.map(([text, picture]) => element("button", { type: "button", role: "tab", "aria-selected": String(picture === this.picture), text, onclick: (event) => this.showPicture(picture, event.target) })));
    }
  }

  showPicture(picture, tab) {
    this.picture = picture;
    for (const each of $("views").children) each.setAttribute("aria-selected", String(each === tab));
    $("legend").hidden = picture !== this.stage;
    this.dirty = true;
  }

  fillHeader() {
    const { header } = this.model;
    document.title = `${header.title} · oncecast playback`;
    $("title").textContent = header.title;
    $("facts").textContent = Object.entries(header.facts).map(([name, value]) => `${name} ${value}`).join(" · ");
    $("notes").replaceChildren(...header.notes.map((text) => element("p", { class: "note", text })));
    const { violation } = header;
    const pill = $("verdict");
    if (header.facts.verdict !== undefined || header.source === "trace") return;
    pill.hidden = false;
    pill.textContent = violation ? "promise broken" : "all promises kept";
    pill.classList.add(violation ? "bad" : "good");
    if (violation) {
      $("alert").hidden = false;
      $("alert-text").textContent = violation.text.split("\n")[0];
      this.view.causes = new Set(violation.chain);
      this.view.slots = violation.slots;
    }
  }

  fillLegend() {
    if (!this.stage) return;
    const { header } = this.model;
    const types = [...this.stage.ranks].slice(0, LEGEND_MAX);
    $("legend").replaceChildren(...types.map(([word, rank]) => {
      const dot = element("i", {});
      dot.style.background = typeColor(rank);
      const chip = element("button", { type: "button", class: "chip", "aria-pressed": String(!this.view.hidden.has(word)), title: "Show or hide these messages" }, dot, element("span", { text: header.words[word] }));
      chip.addEventListener("click", () => {
        if (this.view.hidden.has(word)) this.view.hidden.delete(word);
        else this.view.hidden.add(word);
        chip.setAttribute("aria-pressed", String(!this.view.hidden.has(word)));
        this.dirty = true;
      });
      return chip;
    }));
  }

  fillChoices() {
    const topics = this.model.topics();
    if (topics.length) {
      $("tree-label").hidden = false;
      $("tree").replaceChildren(element("option", { value: "", text: "none" }), ...topics.map((topic) => element("option", { value: topic, text: topic })));
      $("tree").value = this.view.tree = topics[0];
    }
    if (this.slots.groups.length > 1) {
      $("group-label").hidden = false;
      $("group").replaceChildren(element("option", { value: "", text: "all" }), ...this.slots.groups.map((group) => element("option", { value: group, text: group.slice(0, 6) })));
    }
    $("speed").replaceChildren(...SPEEDS.map((speed) => element("option", { value: speed, text: `${speed}×` })));
    const natural = this.model.header.source === "simulation" ? 0.05 : this.model.end / 1e6 / 40;
    $("speed").value = SPEEDS.reduce((best, each) => (Math.abs(Math.log(each / natural)) < Math.abs(Math.log(best / natural)) ? each : best));
  }

  /** Begin at the time in the address, at the violation, or at the first step. */
  chooseStart() {
    const wanted = location.hash.match(/^#t=([\d.]+)$/);
    const { violation } = this.model.header;
    if (wanted) this.seek(Number(wanted[1]) * 1e6);
    else if (violation && this.model.rows) this.showViolation();
    else this.seek(Math.min(this.model.end, this.model.times[0] ?? 0));
  }

  // -- the cursor --

  seek(time) {
    const clamped = Math.max(0, Math.min(this.model.end, time));
    this.move(clamped, this.model.rowAt(clamped));
  }

  seekRow(row) {
    if (row < 0 || row >= this.model.rows) return;
    this.move(this.model.times[row], row);
    this.timeline.follow(this.cursor.time);
    this.panelAt = 0;
  }

  move(time, row) {
    this.cursor = { time, row };
    this.dirty = true;
  }

  play(on) {
    if (on && this.cursor.time >= this.model.end) this.seek(0);
    this.playing = on;
    this.before = performance.now();
    $("play").classList.toggle("playing", on);
    $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  }

  faster(by) {
    const at = SPEEDS.indexOf(Number($("speed").value));
    $("speed").value = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at + by))];
  }

  showViolation() {
    const { violation } = this.model.header;
    if (!violation) return;
    this.view.focus = violation.chain;
    if (violation.step >= 0) this.seekRow(violation.step);
    else this.seek(this.lanes?.middleOfBlamed() ?? violation.time);
    if (this.stage && this.lanes) this.showPicture(this.lanes, $("views").lastElementChild);
    if (this.view.slots.length) this.slots.show(Math.max(...this.view.slots));
    this.showTab("causes");
  }

  // -- frames --

  frame(now) {
    if (this.playing) {
      const time = this.cursor.time + (now - this.before) * 1000 * Number($("speed").value);
      this.before = now;
      if (time >= this.model.end) this.play(false);
      this.seek(time);
      this.timeline.follow(this.cursor.time);
    }
    if (this.dirty) this.draw(now);
    requestAnimationFrame((next) => this.frame(next));
  }

  draw(now) {
    this.dirty = false;
    this.picture.draw(this.cursor);
    if (!$("slots-card").hidden) this.slots.draw(this.cursor);
    this.timeline.draw(this.cursor);
    $("clock").textContent = seconds(this.cursor.time, window.innerWidth > 860 ? 6 : 3);
    if (now - this.panelAt > PANEL_EVERY) this.drawPanel(now);
    else if (!this.late) {
      // The last of many quick changes also updates the panel.
      this.late = setTimeout(() => {
        this.late = null;
        this.drawPanel(performance.now());
      }, PANEL_EVERY);
    }
  }

  drawPanel(now) {
    this.panelAt = now;
    const { model, cursor } = this;
    if (!$("pane-steps").hidden) {
      this.list.follow(cursor);
      showStep($("detail"), model, cursor.row, this.actions);
    }
    if (!$("pane-causes").hidden) showCauses($("pane-causes"), model, cursor, this.actions);
    if (!$("pane-node").hidden) showNode($("pane-node"), model, this.view.node, cursor, this.actions);
    const slider = $("timeline");
    slider.setAttribute("aria-valuemax", (model.end / 1e6).toFixed(3));
    slider.setAttribute("aria-valuenow", (cursor.time / 1e6).toFixed(3));
    slider.setAttribute("aria-valuetext", cursor.row < 0 ? "before the first step" : `${seconds(cursor.time)}: ${summary(model, model.step(cursor.row))}`);
  }

  refresh() {
    this.panelAt = 0;
    this.dirty = true;
  }

  // -- choices --

  select(node) {
    this.view.node = node;
    if (node) this.showTab("node");
    this.refresh();
  }

  showTab(name) {
    for (const each of ["steps", "causes", "node"]) {
      $(`tab-${each}`).setAttribute("aria-selected", String(each === name));
      $(`pane-${each}`).hidden = each !== name;
    }
    this.refresh();
  }

  find(query) {
    $("query").value = query;
    this.hits = this.model.search(query);
    const there = query.trim() !== "";
    this.list.setRows(there ? this.hits : null);
    this.timeline.setMarks(this.hits);
    $("hits").textContent = there ? `${this.hits.length.toLocaleString("en")} steps` : "";
    $("hit-back").hidden = $("hit-next").hidden = !this.hits.length;
    if (there) this.showTab("steps");
    this.refresh();
  }

  /** Go to the next or the previous match. */
  jump(direction) {
    if (!this.hits.length) return;
    const at = this.list.indexOf(this.cursor.row);
    const here = this.hits[at] <= this.cursor.row;
    const next = direction > 0 ? (here ? at + 1 : at) : this.hits[at] < this.cursor.row ? at : at - 1;
    this.seekRow(this.hits[(next + this.hits.length) % this.hits.length]);
  }

  // -- controls --

  connect() {
    $("play").addEventListener("click", () => this.play(!this.playing));
    $("step-back").addEventListener("click", () => this.pausedAt(this.cursor.row - 1));
    $("step-next").addEventListener("click", () => this.pausedAt(this.cursor.row + 1));
    $("zoom-in").addEventListener("click", () => this.zoom(0.5));
    $("zoom-out").addEventListener("click", () => this.zoom(2));
    $("theme").addEventListener("click", () => this.switchTheme());
    $("help").addEventListener("click", () => $("shortcuts").showModal());
    $("alert-go").addEventListener("click", () => this.showViolation());
    $("slots-back").addEventListener("click", () => this.scrollSlots(-10));
    $("slots-next").addEventListener("click", () => this.scrollSlots(10));
    $("tree").addEventListener("change", (event) => { this.view.tree = event.target.value; this.dirty = true; });
    $("group").addEventListener("change", (event) => this.chooseGroup(event.target.value));
    for (const name of ["steps", "causes", "node"]) $(`tab-${name}`).addEventListener("click", () => this.showTab(name));
    $("query").addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.find($("query").value), 150); });
    $("search").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(this.typing); if (this.hits.length === 0) this.find($("query").value); this.jump(1); });
    $("hit-back").addEventListener("click", () => this.jump(-1));
    $("hit-next").addEventListener("click", () => this.jump(1));
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.refresh()).observe(document.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    this.connectTimeline();
    this.connectPicture();
  }

  pausedAt(row) {
    this.play(false);
    if (row < 0) this.seek(0);
    else this.seekRow(row);
  }

  zoom(factor) {
    this.timeline.zoom(factor, this.cursor.time);
    if (this.picture === this.lanes) this.lanes.zoom(factor);
    this.dirty = true;
  }

  scrollSlots(slots) {
    this.slots.scroll(slots, this.cursor);
    this.dirty = true;
  }

  chooseGroup(group) {
    this.view.group = group;
    $("slots").style.height = `${this.slots.height}px`;
    this.dirty = true;
  }

  connectTimeline() {
    const canvas = $("timeline");
    const to = (event) => this.seek(this.timeline.toTime(event.clientX - canvas.getBoundingClientRect().left));
    canvas.addEventListener("pointerdown", (event) => {
      this.play(false);
      canvas.setPointerCapture(event.pointerId);
      to(event);
    });
    canvas.addEventListener("pointermove", (event) => { if (canvas.hasPointerCapture(event.pointerId)) to(event); });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const time = this.timeline.toTime(event.clientX - canvas.getBoundingClientRect().left);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const span = this.timeline.to - this.timeline.from;
        this.timeline.show(this.timeline.from + (span * event.deltaX) / 600, span);
      } else this.timeline.zoom(event.deltaY > 0 ? 1.25 : 0.8, time);
      this.dirty = true;
    }, { passive: false });
    canvas.addEventListener("dblclick", () => { this.timeline.show(0, this.model.end); this.dirty = true; });
  }

  connectPicture() {
    const canvas = $("stage");
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointermove", (event) => this.hover(...place(event)));
    canvas.addEventListener("pointerleave", () => this.showTip(null));
    canvas.addEventListener("click", (event) => this.pick(this.picture.hit(...place(event))));
    canvas.addEventListener("wheel", (event) => {
      if (this.picture !== this.lanes) return;
      event.preventDefault();
      if (event.shiftKey) this.lanes.scroll(event.deltaY);
      else this.lanes.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2);
      this.dirty = true;
    }, { passive: false });
    const slots = $("slots");
    const cell = (event) => { const box = slots.getBoundingClientRect(); return this.slots.hit(event.clientX - box.left, event.clientY - box.top, this.cursor); };
    slots.addEventListener("pointermove", (event) => {
      const hit = cell(event);
      this.showTip(hit && `${this.model.nodes[hit.node]}, slot ${hit.slot}: ${hit.state}`, hit?.value, event);
    });
    slots.addEventListener("pointerleave", () => this.showTip(null));
    slots.addEventListener("click", (event) => { const hit = cell(event); if (hit && hit.row >= 0) this.pausedAt(hit.row); });
  }

  hover(x, y) {
    const hit = this.picture.hit(x, y);
    const hovered = hit?.node || 0;
    if (hovered !== this.view.hovered) { this.view.hovered = hovered; this.dirty = true; }
    $("stage").style.cursor = hit ? "pointer" : "default";
    const box = $("stage").getBoundingClientRect();
    const at = { clientX: x + box.left, clientY: y + box.top };
    if (hit?.message !== undefined) {
      const { model } = this;
      const message = model.message(hit.message);
      this.showTip(`${message.name}: ${model.nodes[message.sender]} → ${model.nodes[message.to]}`, message.text, at);
    } else if (hit?.operation !== undefined) this.showTip(this.lanes.text(hit.operation), "", at);
    else if (hovered) this.showTip(this.model.nodes[hovered], "", at);
    else this.showTip(null);
  }

  showTip(title, text, event) {
    const tip = $("tip");
    tip.hidden = !title;
    if (!title) return;
    tip.replaceChildren(element("strong", { text: title }), text ? element("span", { class: "mono", text }) : null);
    const width = Math.min(340, window.innerWidth - 16);
    tip.style.maxWidth = `${width}px`;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(8, Math.min(event.clientY + 16, window.innerHeight - box.height - 8))}px`;
  }

  pick(hit) {
    if (!hit) this.select(0);
    else if (hit.node) this.select(hit.node === this.view.node ? 0 : hit.node);
    else if (hit.operation !== undefined) this.seek(this.lanes.calls[hit.operation]);
    else {
      const { got, sent } = this.model.message(hit.message);
      const row = got >= 0 ? got : sent;
      if (row >= 0) { this.showTab("steps"); this.pausedAt(row); }
    }
  }

  switchTheme() {
    const style = getComputedStyle(document.documentElement);
    const theme = style.getPropertyValue("--dark").trim() === "1" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("oncecast-theme", theme); } catch { /* a file may have no storage */ }
    this.repaint();
  }

  repaint() {
    forgetPalette();
    this.timeline.backdrop = null;
    this.list.setRows(this.list.rows);
    this.fillLegend();
    this.refresh();
  }

  key(event) {
    const typing = event.target.closest?.("input, select, dialog");
    if (event.key === "Escape" && !$("shortcuts").open) {
      this.find("");
      this.select(0);
      event.target.blur?.();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, time } = this.cursor;
    const far = (this.timeline.to - this.timeline.from) / 100;
    const keys = {
      " ": () => this.play(!this.playing),
      ArrowLeft: () => (event.shiftKey ? this.seek(time - far) : this.pausedAt(row - 1)),
      ArrowRight: () => (event.shiftKey ? this.seek(time + far) : this.pausedAt(row + 1)),
      ArrowUp: () => this.faster(1),
      ArrowDown: () => this.faster(-1),
      Home: () => this.pausedAt(0),
      End: () => this.pausedAt(this.model.rows - 1),
      "/": () => $("query").focus(),
      n: () => this.jump(1),
      p: () => this.jump(-1),
      v: () => this.showViolation(),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      "?": () => $("shortcuts").showModal(),
    };
    const action = keys[event.key];
    const pressed = event.target.closest?.("button") && (event.key === " " || event.key === "Enter");
    if (!action || pressed) return;
    event.preventDefault();
    action();
  }
}

function useSavedTheme() {
  try {
    const theme = localStorage.getItem("oncecast-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch { /* a file may have no storage */ }
}

async function start() {
  useSavedTheme();
  const recording = await decode($("recording").textContent);
  $("recording").remove();
  window.playback = new Page(new Model(recording));
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  $("title").textContent = "This recording cannot be played";
  $("facts").textContent = String(error.message || error);
  document.body.dataset.ready = "false";
});
