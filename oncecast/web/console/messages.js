// Browse and search the messages of a topic. Reading moves no subscription.

import * as api from "./api.js";
import { FORMS, block, line } from "./bytes.js";
import { trouble } from "./dialog.js";
import { h, put } from "./dom.js";
import { bytes, count, time, visible } from "./format.js";
import { empty, loading, search, segmented, select } from "./parts.js";

const PAGE = 50;
const SHORT = 1024; // bytes of each value that a list loads
const FOUND_MAX = 200; // matches after which a search pauses
const FORM = { name: "auto" };

/** Return a row for a message: a summary, and the details when it is open. */
export function messageRow(message, { topic, form = FORM.name }) {
  const detail = h("div", { class: "message-detail", hidden: true });
  const toggle = h(
    "button",
    { class: "message-head", "aria-expanded": "false" },
    h("span", { class: "offset num" }, count(message.offset)),
    h("span", { class: "when num" }, time(message.timestamp_us / 1e6)),
    h("span", { class: "key mono" }, message.key ? h("bdi", {}, line(message.key, form, 40)) : ""),
    h("span", { class: "value mono" }, h("bdi", {}, line(message, form))),
    h("span", { class: "size num" }, bytes(message.size)),
  );
  toggle.addEventListener("click", () => {
    detail.hidden = !detail.hidden;
    toggle.setAttribute("aria-expanded", String(!detail.hidden));
    if (!detail.hidden) open();
  });
  async function open() {
    if (!message.truncated) return put(detail, details(message, form));
    put(detail, loading("Loading the whole message…"));
    try {
      message = await api.get(api.path("topics", topic, "messages", message.offset));
      return put(detail, details(message, form));
    } catch (error) {
      return put(detail, trouble(error, open));
    }
  }
  return h("li", { class: "message" }, toggle, detail);
}

/** Return all of a message. */
export function details(message, form) {
  const value = block(message, form);
  const key = message.key && block(message.key, form === "json" ? "auto" : form);
  const headers = Object.entries(message.headers ?? {});
  const copy = h("button", { class: "quiet small", onclick: () => copied(copy, value.text) }, "Copy");
  return [
    h("dl", { class: "facts" },
      fact("Offset", count(message.offset)),
      fact("Time", time(message.timestamp_us / 1e6)),
      fact("Size", bytes(message.size))),
    key && labelled("Key", key),
    headers.length > 0 &&
      h("div", { class: "payload" }, h("h3", {}, "Headers"),
        h("dl", { class: "headers mono" }, headers.map(([each, field]) =>
          h("div", {}, h("dt", {}, h("bdi", {}, visible(each))), h("dd", {}, h("bdi", {}, line(field, "auto", 2000))))))),
    labelled("Value", value, copy),
  ];
}

const fact = (label, text) => h("div", {}, h("dt", {}, label), h("dd", { class: "num" }, text));

const labelled = (label, { text, form, note }, tool) =>
  h("div", { class: "payload" },
    h("div", { class: "payload-head" }, h("h3", {}, label, h("span", { class: "muted" }, ` ${form}`)), tool),
    note && h("p", { class: "muted" }, note),
    h("pre", { tabindex: "0", "aria-label": label }, text || h("span", { class: "muted" }, "empty")));

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying is not allowed";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

// -- the messages tab of a topic --

export function browse({ which, content, seen, signal, query }) {
  const state = { form: FORM.name, from: null, text: "", page: null, run: new AbortController() };
  const list = h("ol", { class: "messages panel", "aria-label": "Messages" });
  const result = h("div");
  const pager = h("nav", { class: "pager", "aria-label": "Pages of messages" });
  const box = search("Search keys and values", (text) => {
    state.text = text;
    load();
  });
  const start = h("input", { type: "number", min: 0, step: 1, placeholder: "newest", "aria-label": "Start at offset" });
  const moment = h("input", { type: "datetime-local", step: 1, "aria-label": "Start at time" });
  const by = select([["offset", "From offset"], ["time", "From time"]], "offset", { "aria-label": "Start by" });
  const where = h("span", { class: "joined" }, by, start);
  by.addEventListener("change", () => put(where, by, by.value === "offset" ? start : moment));
  start.addEventListener("change", () => jump(start.value === "" ? null : { from: Number(start.value) }));
  moment.addEventListener("change", () => jump(moment.value ? { timestamp: new Date(moment.value).getTime() * 1000 } : null));
  put(content,
    h("div", { class: "bar" }, box, where, segmented("Show values as", FORMS, state.form, (form) => {
      FORM.name = state.form = form;
      if (state.page) show(state.page);
    })),
    result, pager);

  signal.addEventListener("abort", () => state.run.abort());
  seen.heard.addEventListener("put", () => jump(null), { signal });
  seen.heard.addEventListener("change", () => following(), { signal });
  if (query.get("from")) {
    start.value = query.get("from");
    jump({ from: Number(query.get("from")) });
  } else load();

  function jump(from) {
    state.from = from;
    load();
  }

  /** Return where a page starts that ends before `end`. */
  function before(end) {
    return Math.max(seen.topic.first, end - PAGE);
  }

  async function load() {
    state.run.abort();
    const run = (state.run = new AbortController());
    put(result, loading(state.text ? "Searching…" : "Loading…"));
    put(pager);
    try {
      if (state.text) await find(run.signal);
      else {
        const from = state.from ?? { from: before(seen.topic.end) };
        show(await api.get(api.path("topics", which, "messages"), { ...from, limit: PAGE, value_bytes: SHORT }, run.signal));
      }
    } catch (error) {
      if (!run.signal.aborted) put(result, h("div", { class: "panel" }, trouble(error, load)));
    }
  }

  /** Show a page, newest first. */
  function show(page) {
    state.page = page;
    const found = page.messages ?? [];
    if (!found.length) {
      put(result, nothing());
    } else {
      put(list, [...found].reverse().map((each) => messageRow(each, { topic: which, form: state.form })));
      put(result, list);
    }
    if (!state.text) pages(found);
  }

  function pages(found) {
    const [low, high] = [seen.topic.first, seen.topic.end];
    state.end = high;
    const first = found[0]?.offset ?? low;
    const next = (found.at(-1)?.offset ?? first) + 1;
    const turn = (text, from, off) => h("button", { class: "quiet", disabled: off, onclick: () => jump(from) }, text);
    put(pager,
      h("span", { class: "muted num" }, found.length ? `offsets ${count(first)} to ${count(next - 1)} of ${count(low)} to ${count(high - 1)}` : ""),
      turn("Newest", null, next >= high && found.length > 0),
      turn("Newer", { from: next }, next >= high),
      turn("Older", { from: before(first) }, first <= low),
      turn("Oldest", { from: low }, first <= low));
  }

  /** Enable the buttons for newer messages when the topic grows. */
  function following() {
    if (!state.page || state.text) return;
    if (!(state.page.messages ?? []).length && seen.topic.end > seen.topic.first) load();
    else if (state.end === seen.topic.end || pager.contains(document.activeElement)) return;
    else pages(state.page.messages ?? []);
  }

  function nothing() {
    if (state.text) return empty(`No message contains “${visible(state.text)}”.`, "Search compares keys, values and headers. Upper and lower case differ.");
    if (seen.topic.end === seen.topic.first)
      return empty("This topic keeps no messages.", seen.topic.end ? "All messages are acknowledged or too old." : "Put the first one here, or read with oncecast get.");
    return empty("No messages from here on.");
  }

  /** Search forwards. The API stops after a part of the topic, so go on from where it stopped. */
  async function find(stop) {
    const found = [];
    let from = state.from ?? { from: seen.topic.first };
    const { first: low, end: high } = seen.topic;
    for (;;) {
      const page = await api.get(api.path("topics", which, "messages"), { ...from, search: state.text, limit: PAGE, value_bytes: SHORT }, stop);
      found.push(...(page.messages ?? []));
      const next = page.next;
      const ended = next === null || next === undefined;
      const full = found.length >= FOUND_MAX;
      if (ended || full) {
        show({ messages: found.slice(0, FOUND_MAX) });
        put(pager, h("span", { class: "muted num" }, `${count(found.length)} found, newest first`),
          !ended && h("button", { class: "quiet", onclick: () => jump({ from: next }) }, `Go on from offset ${count(next)}`));
        return;
      }
      from = { from: next };
      const share = Math.round((100 * (next - low)) / Math.max(high - low, 1));
      const halt = h("button", { class: "quiet", onclick: () => halted(found, next) }, "Stop");
      put(result, h("div", { class: "panel progress" }, loading(`Searched ${share}% of the topic, ${count(found.length)} found…`), halt));
    }
  }

  function halted(found, next) {
    state.run.abort();
    show({ messages: found });
    put(pager, h("span", { class: "muted num" }, `stopped at offset ${count(next)}`), h("button", { class: "quiet", onclick: () => jump({ from: next }) }, "Go on"));
  }
}
