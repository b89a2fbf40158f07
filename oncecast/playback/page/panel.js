// The panel beside the picture: the steps, the causes of a violation, and one node.

import { seconds } from "playback/model.js";
import { typeColor } from "playback/palette.js";

const ROW = 30;
const EXTRA = 6;

/** Make an element with text and children. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "text") made.textContent = value;
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(Boolean));
  return made;
}

/** A list of steps that makes elements only for the visible rows. */
export class StepList {
  constructor(root, model, view, ranks, actions) {
    this.root = root;
    this.model = model;
    this.view = view;
    this.ranks = ranks;
    this.actions = actions;
    this.rows = null; // the rows of a search, or null for all rows
    this.body = element("div", { class: "rows" });
    root.replaceChildren(this.body);
    this.items = [];
    root.addEventListener("scroll", () => this.render(), { passive: true });
  }

  setRows(rows) {
    this.rows = rows;
    this.items.forEach((item) => (item.row = null));
  }

  get count() {
    return this.rows === null ? this.model.rows : this.rows.length;
  }

  rowAt(index) {
    return this.rows === null ? index : this.rows[index];
  }

  indexOf(row) {
    if (this.rows === null) return row;
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle] <= row) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  /** Show the steps around the cursor. */
  follow(cursor) {
    this.cursor = cursor;
    const top = this.indexOf(cursor.row) * ROW - this.root.clientHeight / 2 + ROW;
    this.root.scrollTop = Math.max(0, top);
    this.render();
  }

  render() {
    this.body.style.height = `${this.count * ROW}px`;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - EXTRA);
    const visible = Math.ceil(this.root.clientHeight / ROW) + 2 * EXTRA;
    while (this.items.length < visible) this.items.push(this.makeItem());
    this.items.forEach((item, at) => {
      const index = first + at;
      const there = at < visible && index < this.count;
      item.root.hidden = !there;
      if (there) this.fill(item, index);
    });
  }

  makeItem() {
    const time = element("span", { class: "time" });
    const node = element("span", { class: "node" });
    const dot = element("span", { class: "dot" });
    const what = element("span", { class: "what" });
    const text = element("span", { class: "text" });
    const item = { row: null };
    const pick = () => item.row !== null && this.actions.seek(item.row);
    item.root = element("button", { class: "row", type: "button", tabindex: "-1", onclick: pick }, time, node, dot, what, text);
    Object.assign(item, { time, node, dot, what, text });
    this.body.append(item.root);
    return item;
  }

  fill(item, index) {
    const row = this.rowAt(index);
    if (item.row !== row) {
      const step = this.model.step(row);
      item.row = row;
      item.time.textContent = (step.time / 1e6).toFixed(4);
      item.node.textContent = step.node ? this.model.nodes[step.node] : "network";
      item.what.textContent = summary(this.model, step);
      item.text.textContent = step.text;
      item.dot.style.background = step.message < 0 ? "transparent" : typeColor(this.ranks.get(this.model.columns["messages.name"][step.message]) ?? 99);
      item.root.dataset.kind = step.kind;
    }
    item.root.style.transform = `translateY(${index * ROW}px)`;
    item.root.classList.toggle("now", this.cursor !== undefined && row === this.cursor.row);
    item.root.classList.toggle("cause", this.view.causes.has(row));
  }
}

/** Return a few words for a step: its kind, and the type of what it handles. */
export function summary(model, step) {
  if (step.kind === "receive") {
    const from = step.message < 0 ? "" : ` ← ${model.nodes[model.message(step.message).sender]}`;
    return `${step.name}${from}`;
  }
  const kinds = { wake: "timer", request: "request", call: "call", return: "return", event: "" };
  const kind = kinds[step.kind] ?? step.kind;
  return [kind, step.name].filter(Boolean).join(" ");
}

/** Fill the details of one step. */
export function showStep(root, model, row, actions) {
  if (row < 0) {
    root.replaceChildren(element("p", { class: "hint", text: "Before the first step." }));
    return;
  }
  const step = model.step(row);
  const title = element(
    "div",
    { class: "step-title" },
    element("strong", { text: summary(model, step) }),
    element("span", { class: "muted", text: ` at ${step.node ? model.nodes[step.node] : "the network"}, ${seconds(step.time, 6)}` }),
  );
  const parts = [title];
  if (step.text) parts.push(element("p", { class: "mono", text: step.text }));
  const effects = model.effects(row);
  if (effects.length) {
    parts.push(element("ul", { class: "effects mono" }, ...effects.map((text) => element("li", { text }))));
  }
  const sends = model.sends(row);
  if (sends.length) {
    const shown = sends.slice(0, 12).map((index) => sendLine(model, index, actions));
    if (sends.length > 12) shown.push(element("li", { class: "muted", text: `and ${sends.length - 12} more` }));
    parts.push(element("h4", { text: sends.length === 1 ? "Sends 1 message" : `Sends ${sends.length} messages` }), element("ul", { class: "sends" }, ...shown));
  }
  if (step.cause >= 0) {
    const cause = model.step(step.cause);
    parts.push(
      element("button", { class: "link", type: "button", onclick: () => actions.seek(step.cause), text: `${step.kind === "wake" ? "Set by" : "Caused by"}: ${where(model, cause)}` }),
    );
  }
  root.replaceChildren(...parts);
}

const FATES = {
  lost: "lost by chance",
  cut: "lost in a partition",
  down: "arrived while the node was not running",
  unsent: "not sent: the node crashed first",
  held: "held until the end",
  open: "not received before the end",
};

function sendLine(model, index, actions) {
  const message = model.message(index);
  const to = model.nodes[message.to];
  if (message.got < 0) {
    return element("li", {}, element("span", { text: `${message.name} → ${to} ` }), element("span", { class: "fate", text: FATES[message.fate] || message.fate }));
  }
  return element(
    "li",
    {},
    element("button", { class: "link", type: "button", onclick: () => actions.seek(message.got), text: `${message.name} → ${to}` }),
    element("span", { class: "muted", text: ` received at ${seconds(model.times[message.got], 4)}` }),
  );
}

export function where(model, step) {
  return `${summary(model, step)} at ${step.node ? model.nodes[step.node] : "the network"}, ${seconds(step.time, 4)}`;
}

/** Fill the list of causes: the chain of a step, and related steps of a violation. */
export function showCauses(root, model, cursor, actions) {
  const parts = [];
  const { violation } = model.header;
  if (violation) {
    const more = violation.text.length > 1200;
    parts.push(
      element("h3", { text: "Broken promise" }),
      element("p", { class: "violation-text mono", text: more ? `${violation.text.slice(0, 1200)}…` : violation.text }),
      element("p", { class: "muted", text: violation.step >= 0 ? `Detected at ${seconds(violation.time, 6)}, after the last step below.` : `Detected at ${seconds(violation.time, 6)}, when the state at the end of the run was checked.` }),
    );
    if (violation.chain.length) {
      parts.push(element("h4", { text: "Events that led to it" }), chainList(model, violation.chain, cursor, actions, true));
    }
    if (violation.related.length) {
      parts.push(element("h4", { text: model.columns["ops.call"].length ? "Requests of the counterexample" : "Other events of the same slots and nodes" }), chainList(model, violation.related, cursor, actions, false));
    }
  }
  if (cursor.row >= 0) {
    parts.push(element("h3", { text: "Why the current step happened" }), chainList(model, model.chain(cursor.row), cursor, actions, true));
  }
  root.replaceChildren(...parts);
}

function chainList(model, rows, cursor, actions, ordered) {
  const items = rows.map((row) => {
    const step = model.step(row);
    const button = element(
      "button",
      { class: row === cursor.row ? "event now" : "event", type: "button", onclick: () => actions.seek(row), "data-row": row },
      element("span", { class: "time", text: (step.time / 1e6).toFixed(4) }),
      element("span", { class: "node", text: step.node ? model.nodes[step.node] : "network" }),
      element("span", { class: "what", text: summary(model, step) }),
      element("span", { class: "text mono", text: step.text }),
    );
    return element("li", {}, button);
  });
  return element(ordered ? "ol" : "ul", { class: ordered ? "chain" : "related" }, ...items);
}

const LABELS = {
  up: "running", paused: "paused", role: "role", ballot: "promised ballot", leader: "leader it follows",
  applied: "applied up to slot", chosen: "chosen up to slot", group: "group", position: "position on the ring",
  successor: "successor", predecessor: "predecessor", active: "active view", eager: "eager peers",
};

/** Fill the state of a node. */
export function showNode(root, model, node, cursor, actions) {
  if (!node) {
    root.replaceChildren(element("p", { class: "hint", text: "Click a node to see its state and only its messages." }));
    return;
  }
  const rows = model.states(node, cursor.row).map(([key, value]) => {
    const shown = key === "up" || key === "paused" ? (value ? "yes" : "no")
      : key === "position" ? `${((value / 2 ** 32) * 100).toFixed(2)} % of the ring`
      : key.startsWith("tree ") ? treeText(value) : String(value);
    return element("tr", {}, element("th", { scope: "row", text: LABELS[key] || key.replace("tree ", "tree of ") }), element("td", { class: "mono", text: shown }));
  });
  root.replaceChildren(
    element("h3", { text: model.nodes[node] }),
    element("table", {}, element("tbody", {}, ...rows)),
    element("div", { class: "actions" },
      element("button", { type: "button", class: "button", text: "Find its steps", onclick: () => actions.find(`node:${model.nodes[node]}`) }),
      element("button", { type: "button", class: "button", text: "Show all nodes", onclick: () => actions.select(0) })),
  );
}

function treeText(value) {
  const parent = value.slice(1);
  const place = parent === "*" ? "root" : parent ? `child of ${parent}` : "without a parent";
  return value[0] === "+" ? `${place}, member` : place;
}
