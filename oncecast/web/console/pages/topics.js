// Topics: search and page through all topics, and create one.

import * as api from "../api.js";
import { ask, notify } from "../dialog.js";
import { h, put } from "../dom.js";
import { bytes, count, keeps, rate } from "../format.js";
import { monitor } from "../monitor.js";
import { empty, field, head, name, pager, search, slot, stale, table } from "../parts.js";
import { poll } from "../poll.js";
import { policyFields, readPolicy } from "../policy.js";
import { rewrite, topicLink } from "../router.js";

const PAGE = 100;
const EVERY = 5; // seconds

export const topics = { title: () => ["Topics", "topics"], render };

function render({ main, query, signal }) {
  let wanted = query.get("search") ?? "";
  let starts = [""]; // the topic before each page so far; the last one is the current page
  const box = search("Search topics", (text) => {
    wanted = text;
    starts = [""];
    rewrite({ search: wanted });
    list.wait("Searching…");
    refresh();
  }, wanted);
  const create = h("button", { class: "primary", onclick: () => createTopic(), data: { new: "" } }, "Create topic");
  const late = stale();
  const list = slot();
  const rows = topicTable();
  const turns = pager("Pages of topics");
  put(main, head("Topics", { actions: [create] }), h("div", { class: "bar" }, box), late.element, list.element, turns.element);
  list.wait();
  const load = (stop) => api.get("/topics", { search: wanted, after: starts.at(-1), limit: PAGE }, stop);
  const refresh = poll(EVERY, signal, load, update, (error) => {
    if (list.element.contains(rows.element)) late.show(error);
    else list.fail(error, refresh);
  });

  function update(data) {
    late.clear();
    const found = data.topics ?? [];
    if (found.length) {
      if (!list.element.contains(rows.element)) list.show(rows.element);
      rows.show(found);
    } else list.show(nothing(wanted));
    pages(data);
  }

  function pages({ topics: found = [], next }) {
    const total = wanted ? null : monitor.overview?.topics;
    const turn = (to) => () => {
      starts = to;
      refresh();
      scrollTo(0, 0);
    };
    const first = (starts.length - 1) * PAGE + 1;
    const words = found.length ? `${count(first)}–${count(first + found.length - 1)}${typeof total === "number" ? ` of ${count(total)}` : ""}` : "";
    turns.show(words, { back: starts.length > 1 && turn(starts.slice(0, -1)), on: next && turn([...starts, next]) });
  }
}

const nothing = (wanted) =>
  wanted
    ? empty(`No topic contains “${wanted}”.`, "Search looks for this text anywhere in a topic’s name.")
    : empty("No topics yet.", "Create one here, or put a message: ", h("code", {}, "oncecast put news hello"));

function topicTable() {
  return table(
    [
      { head: "Topic", class: "wide", fixed: true, cell: (each) => h("a", { href: topicLink(each.name) }, name(each.name)) },
      { head: "Messages", class: "num", cell: (each) => count(each.end - each.first) },
      { head: "Puts", class: "num opt", cell: (each) => rate(each.puts_per_second) },
      { head: "Size", class: "num", cell: (each) => bytes(each.bytes) },
      { head: "Subscriptions", class: "num opt", cell: (each) => count(each.subscriptions) },
      { head: "Keeps", class: "opt", cell: (each) => keeps(each.policy) },
    ],
    (each) => each.name,
    { label: "Topics" },
  );
}

async function createTopic() {
  const input = h("input", { name: "topic", required: true, autocomplete: "off", spellcheck: "false" });
  const done = await ask({
    title: "Create topic",
    body: [field("Name", input), policyFields({})],
    action: "Create topic",
    act: async (form) => {
      await api.put(api.path("topics", input.value), readPolicy(form));
      return input.value;
    },
  });
  if (!done) return;
  notify(`Topic ${done} exists.`);
  location.hash = topicLink(done);
}
