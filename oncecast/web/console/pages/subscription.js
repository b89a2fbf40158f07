// One subscription: lag over time, dead letters, seek and delete.

import * as api from "../api.js";
import { chart } from "../chart.js";
import { ask, confirm, notify, trouble } from "../dialog.js";
import { h, put } from "../dom.js";
import { brief, count, duration, plural } from "../format.js";
import { deadPath, forgetLetters } from "../letters.js";
import { reader, seekDialog } from "../listing.js";
import { messageRow } from "../messages.js";
import { empty, field, head, loading, name, stale, strip } from "../parts.js";
import { poll } from "../poll.js";
import { topicLink } from "../router.js";
import { series } from "../series.js";

const EVERY = 2; // seconds
const LETTERS = 100;
const LETTERS_EVERY = 5; // seconds

export const subscription = { title: ({ name: which }) => [which, "subscriptions"], render };

function render({ main, parameters, signal }) {
  const { topic, name: which } = parameters;
  const where = api.path("topics", topic, "subscriptions", which);
  const late = stale();
  const state = h("span", { class: "health" });
  const content = h("div", { class: "stack" }, loading());
  const actions = [
    h("button", { onclick: () => seek() }, "Seek"),
    h("button", { class: "danger", onclick: () => destroy() }, "Delete"),
  ];
  const crumbs = [["Topics", "#/topics"], [topic, topicLink(topic)], ["Subscriptions", topicLink(topic, { tab: "subscriptions" })]];
  put(main, head(name(which), { crumbs, note: state, actions }), late.element, content);
  let view = null;

  const refresh = poll(EVERY, signal, (stop) => api.get(where, {}, stop), update, (error) => {
    if (view && error.status !== 404) late.show(error);
    else put(content, h("div", { class: "panel" }, trouble(error, refresh)));
  });

  function update(data) {
    late.clear();
    view ??= build(content, { topic, which, where, data, signal });
    put(state, reader(data));
    view.update(data);
  }

  async function seek() {
    const done = await seekDialog(topic, which);
    if (!done) return;
    notify(`The subscription is at offset ${count(done.cursor)}.`);
    refresh();
  }

  async function destroy() {
    const done = await confirm({
      title: "Delete subscription",
      text: ["This deletes the subscription ", name(which), " and its position in ", name(topic), ". Its readers end with an error. It cannot be undone."],
      word: which,
      action: "Delete subscription",
      act: () => api.remove(where),
    });
    if (!done) return;
    notify(`Subscription ${which} is deleted.`);
    location.hash = topicLink(topic, { tab: "subscriptions" });
  }
}

function build(content, { topic, which, where, data, signal }) {
  const shared = data.shared ?? null;
  const lag = series("lag", topic, which);
  const flight = series("flight", topic, which);
  const retries = series("retries", topic, which);
  const facts = strip(shared ? ["Lag", "Next offset", "Workers", "In flight", "Retries", "Dead letters"] : ["Lag", "Next offset", "Epoch"]);
  const charts = [chart({ title: "Lag", lines: [{ series: lag, tone: "lag" }], format: brief })];
  if (shared)
    charts.push(chart({ title: "Jobs", lines: [{ name: "in flight", series: flight, tone: "puts" }, { name: "retries", series: retries, tone: "out" }], format: brief }));
  const letters = shared && deadLetters({
    where: deadPath({ topic, name: which }), topic, shared, signal,
    onCount: (open) => {
      facts.set({ "Dead letters": count(open) });
      facts.warn("Dead letters", open > 0);
    },
  });
  put(content, facts.element, h("div", { class: "charts" }, charts.map((each) => each.element)), letters?.element, shared && settings(shared.settings));
  return {
    update(seen) {
      const now = Date.now() / 1000;
      lag.add(now, seen.lag);
      flight.add(now, seen.shared?.leased);
      retries.add(now, seen.shared?.waiting);
      facts.set(
        shared
          ? { Lag: count(seen.lag), "Next offset": count(seen.cursor), Workers: count(seen.shared?.workers), "In flight": count(seen.shared?.leased), Retries: count(seen.shared?.waiting) }
          : { Lag: count(seen.lag), "Next offset": count(seen.cursor), Epoch: count(seen.epoch) },
      );
      for (const each of charts) each.draw();
    },
  };
}

function settings(shared) {
  const rows = [
    ["Lease", duration(shared.lease)],
    ["Deliveries before a dead letter", shared.deliveries_max ? count(shared.deliveries_max) : "no limit"],
    ["Backoff", `${duration(shared.backoff_min)} to ${duration(shared.backoff_max)}`],
    ["In flight at most", count(shared.in_flight_max)],
    ["Order by key", shared.by_key ? "yes" : "no"],
  ];
  return h("section", { class: "panel", "aria-labelledby": "settings-title" }, h("h2", { id: "settings-title" }, "Settings"),
    h("dl", { class: "facts" }, rows.map(([label, text]) => h("div", {}, h("dt", {}, label), h("dd", { class: "num" }, text)))));
}

// -- dead letters --

function deadLetters({ where, topic, shared, signal, onCount }) {
  const picked = new Set();
  const list = h("ol", { class: "messages letters", "aria-label": "Dead letters" });
  const place = h("div", {}, loading());
  const all = h("input", { type: "checkbox", "aria-label": "Select all shown dead letters" });
  const retry = h("button", {}, "Retry");
  const drop = h("button", { class: "danger" }, "Drop");
  const tools = h("div", { class: "bar", hidden: true }, h("label", { class: "check" }, all, h("span", {}, "Select all")), h("span", { class: "grow" }), retry, drop);
  const element = h("section", { class: "panel", "aria-labelledby": "letters-title" },
    h("div", { class: "panel-head" }, h("h2", { id: "letters-title" }, "Dead letters"),
      shared.dead_letters && h("a", { class: "more", href: topicLink(shared.dead_letters) }, "Topic ", name(shared.dead_letters))),
    tools, place);
  let shown = [];

  retry.addEventListener("click", () => settle("retry"));
  drop.addEventListener("click", () => settle("drop"));
  all.addEventListener("change", () => {
    for (const box of list.querySelectorAll("input")) box.checked = all.checked;
    picked.clear();
    if (all.checked) for (const each of shown) picked.add(each.offset);
    label();
  });

  function label() {
    const some = picked.size > 0;
    retry.textContent = some ? `Retry ${count(picked.size)}` : "Retry all";
    drop.textContent = some ? `Drop ${count(picked.size)}` : "Drop all";
    all.checked = some && picked.size === shown.length;
    all.indeterminate = some && picked.size < shown.length;
  }

  const load = poll(LETTERS_EVERY, signal, (stop) => api.get(where, { limit: LETTERS }, stop), see, (error) => {
    if (!shown.length) put(place, trouble(error, load));
  });

  function see(data) {
    onCount(data.count);
    const now = JSON.stringify(data.letters.map((each) => each.offset));
    if (now === JSON.stringify(shown.map((each) => each.offset)) && (shown.length || place.querySelector(".empty"))) return;
    shown = data.letters;
    for (const offset of picked) if (!shown.some((each) => each.offset === offset)) picked.delete(offset);
    tools.hidden = !shown.length;
    label();
    if (!shown.length) return void put(place, empty("No dead letters.", "A job becomes one when a worker rejects it, or after its last delivery fails."));
    put(list, shown.map(letterRow));
    put(place, list, data.next !== null && h("p", { class: "muted more-letters" }, `These are the first ${count(shown.length)} of ${count(data.count)}.`));
  }

  function letterRow(letter) {
    const box = h("input", { type: "checkbox", checked: picked.has(letter.offset), "aria-label": `Select the dead letter at offset ${letter.offset}` });
    box.addEventListener("change", () => {
      if (box.checked) picked.add(letter.offset);
      else picked.delete(letter.offset);
      label();
    });
    const why = h("p", { class: "why" }, h("span", { class: "badge warn" }, letter.reason ?? "unknown"),
      letter.detail && h("bdi", { class: "detail" }, letter.detail),
      h("span", { class: "muted num" }, plural(letter.deliveries ?? 0, "delivery", "deliveries")));
    const row = messageRow({ ...letter.message, offset: letter.offset }, { topic: shared.dead_letters });
    row.prepend(h("label", { class: "pick" }, box));
    row.append(why);
    return row;
  }

  async function settle(act) {
    const some = picked.size > 0;
    const body = some ? { offsets: [...picked].sort((a, b) => a - b) } : { all: true };
    const which = some ? plural(picked.size, "dead letter") : "all dead letters";
    const done = act === "retry" ? await retryDialog(which, body) : await dropDialog(which, body);
    if (!done) return;
    notify(act === "retry" ? `${plural(done.count, "message is", "messages are")} put again.` : `${plural(done.count, "dead letter is", "dead letters are")} deleted.`);
    picked.clear();
    forgetLetters(where);
    load();
  }

  const retryDialog = (which, body) => {
    const to = h("input", { value: topic, required: true, autocomplete: "off", spellcheck: "false" });
    return ask({
      title: "Retry dead letters",
      body: [h("p", {}, `This puts ${which} at the end of a topic, as new messages for all its subscriptions.`), field("Topic", to)],
      action: "Retry",
      act: () => api.post(`${where}/retry`, { ...body, to: to.value }),
    });
  };

  const dropDialog = (which, body) =>
    confirm({ title: "Drop dead letters", text: `This deletes ${which}. It cannot be undone.`, action: "Drop", act: () => api.post(`${where}/drop`, body) });

  return { element };
}
