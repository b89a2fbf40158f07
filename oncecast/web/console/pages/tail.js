// Live tail: messages as they are put. The page keeps a bounded number of them.

import * as api from "../api.js";
import { FORMS, line } from "../bytes.js";
import { trouble } from "../dialog.js";
import { h, put, say } from "../dom.js";
import { follow } from "../events.js";
import { count, rate, visible } from "../format.js";
import { messageRow } from "../messages.js";
import { badge, empty, head, search, segmented, select } from "../parts.js";
import { link } from "../router.js";
import { suggest } from "./cluster.js";

const KEPT_MAX = 1000; // messages
const BYTES_MAX = 8 * 1024 * 1024; // base64 characters of their values
const SHOWN_MAX = 300; // rows
const PAINT_MS = 120;

export const tail = { title: () => ["Live tail", "tail"], render };

function render({ main, query, signal }) {
  const which = query.get("topic") ?? "";
  const input = h("input", { type: "search", value: which, placeholder: "Topic", "aria-label": "Topic", list: "tail-topics", autocomplete: "off", spellcheck: "false", data: which ? {} : { search: "" } });
  const choices = h("datalist", { id: "tail-topics" });
  const from = select([["latest", "from now"], ["earliest", "from the oldest"]], query.get("from") ?? "latest", { "aria-label": "Start" });
  const form = h("form", { class: "bar" }, input, choices, from, h("button", { class: which ? "" : "primary" }, "Follow"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = link(["tail"], { topic: input.value, from: from.value === "latest" ? "" : from.value });
    if (location.hash === wanted) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = wanted;
  });
  const place = h("div", { class: "stack" });
  const state = h("span", { class: "health" });
  put(main, head("Live tail", { note: state }), form, place);
  suggest(input, choices, signal);
  if (which) watch({ which, from: from.value, place, state, signal });
  else put(place, empty("Choose a topic to follow.", "New messages appear here as they are put. Following a topic moves no subscription."));
}

/** The newest messages, bounded in number and bytes. */
export class Recent {
  messages = [];
  seen = 0;
  #bytes = 0;

  add(message) {
    this.seen += 1;
    this.messages.push(message);
    this.#bytes += weight(message);
    while (this.messages.length > KEPT_MAX || (this.#bytes > BYTES_MAX && this.messages.length > 1)) {
      this.#bytes -= weight(this.messages.shift());
    }
  }

  clear() {
    this.messages = [];
    this.#bytes = 0;
  }
}

const weight = (message) => (message.value ?? "").length + (message.key?.value ?? "").length + 100;

function watch({ which, from, place, state, signal }) {
  const recent = new Recent();
  const view = { paused: false, form: "auto", text: "", dirty: false, waiting: 0, shown: new Map(), rates: [] };
  const pause = h("button", { "aria-pressed": "false", data: { pause: "" }, title: "Pause or resume (p)" }, "Pause");
  const facts = h("span", { class: "muted num tail-facts", role: "status" });
  const list = h("ol", { class: "messages panel", "aria-label": "Messages, newest first" });
  const body = h("div", {}, waiting());
  const filter = search("Filter keys and values", (text) => {
    view.text = text.toLowerCase();
    again();
  });
  pause.addEventListener("click", () => {
    view.paused = !view.paused;
    view.waiting = 0;
    pause.setAttribute("aria-pressed", String(view.paused));
    pause.textContent = view.paused ? "Resume" : "Pause";
    paint();
  });
  const clear = h("button", { class: "quiet", onclick: () => (recent.clear(), again()) }, "Clear");
  put(place, h("div", { class: "bar" }, filter, segmented("Show values as", FORMS, view.form, (form) => {
    view.form = form;
    again();
  }), h("span", { class: "bar end" }, pause, clear)), facts, body);

  function again() {
    view.shown.clear();
    put(list);
    paint(true);
  }

  const matches = (message) =>
    !view.text || [message.key, message].some((each) => each && (each.text ?? line(each, "hex", 4000)).toLowerCase().includes(view.text));

  /** Show the newest messages. A pause freezes the list, but a new filter still applies to it. */
  function paint(forced = false) {
    view.dirty = false;
    const words = [`${count(recent.seen)} received`, rate(speed())];
    if (recent.seen > recent.messages.length) words.push(`the last ${count(recent.messages.length)} are kept`);
    if (view.paused) words.push(`paused, ${count(view.waiting)} new`);
    say(facts, words.join(" · "));
    if (view.paused && !forced) return;
    const wanted = [];
    for (let at = recent.messages.length - 1; at >= 0 && wanted.length < SHOWN_MAX; at -= 1) {
      if (matches(recent.messages[at])) wanted.push(recent.messages[at]);
    }
    if (!wanted.length) return void put(body, recent.messages.length ? empty("No received message matches the filter.") : waiting());
    if (!body.contains(list)) put(body, list);
    update(wanted);
  }

  /** Return the messages per second over the last five seconds. */
  function speed() {
    const now = performance.now();
    if (now - (view.rates.at(-1)?.[0] ?? -Infinity) > 500) view.rates.push([now, recent.seen]);
    while (view.rates.length > 2 && now - view.rates[0][0] > 5000) view.rates.shift();
    const [at, seen] = view.rates[0];
    return (recent.seen - seen) / Math.max((now - at) / 1000, 1);
  }

  function update(wanted) {
    const keep = new Set(wanted);
    for (const [message, row] of view.shown) {
      if (keep.has(message)) continue;
      row.remove();
      view.shown.delete(message);
    }
    let before = list.firstChild;
    for (const message of wanted) {
      let row = view.shown.get(message);
      if (!row) view.shown.set(message, (row = messageRow(message, { topic: which, form: view.form })));
      if (row === before) before = before.nextSibling;
      else list.insertBefore(row, before);
    }
  }

  function take(event) {
    if (event.event === "lost") return gap(JSON.parse(event.data));
    if (event.event && event.event !== "message") return undefined;
    recent.add(JSON.parse(event.data));
    if (view.paused) view.waiting += 1;
    if (!view.dirty) {
      view.dirty = true;
      setTimeout(() => signal.aborted || paint(), PAINT_MS);
    }
    return undefined;
  }

  const gap = ({ first, next }) =>
    list.prepend(h("li", { class: "gap" }, `The messages from offset ${count(first)} to ${count(next - 1)} were deleted before they were sent.`));

  const STATES = {
    connecting: ["plain", "Connecting"],
    open: ["good", "Live"],
    waiting: ["warn", "Reconnecting"],
    failed: ["bad", "Ended"],
  };
  follow(api.path("topics", which, "tail"), {
    query: { from: from === "earliest" ? 0 : null, value_bytes: 4096 },
    signal,
    onEvent: take,
    onState: (word, error) => {
      put(state, badge(...STATES[word]), h("bdi", { class: "muted" }, visible(which)));
      if (error) put(body, h("div", { class: "panel" }, trouble(error)));
    },
  });
  const timer = setInterval(() => view.dirty || paint(), 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

const waiting = () => empty("No messages yet.", "New messages appear here as soon as they are put.");
