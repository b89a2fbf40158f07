// Subscriptions: all of them, with their lag.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { visible } from "../format.js";
import { countLetters, withLetters } from "../letters.js";
import { subscriptionTable } from "../listing.js";
import { empty, head, pager, search, slot, stale } from "../parts.js";
import { poll } from "../poll.js";
import { rewrite } from "../router.js";

const PAGE = 200;
const EVERY = 3; // seconds

export const subscriptions = { title: () => ["Subscriptions", "subscriptions"], render };

function render({ main, query, signal }) {
  const state = { text: query.get("search") ?? "", starts: [""], data: null };
  const box = search("Filter subscriptions", (text) => {
    state.text = text;
    rewrite({ search: text });
    show();
  }, state.text);
  const late = stale();
  const list = slot();
  const rows = subscriptionTable({ withTopic: true });
  const turns = pager("Pages of subscriptions");
  put(main, head("Subscriptions"), h("div", { class: "bar" }, box), late.element, list.element, turns.element);
  list.wait();
  const load = async (stop) => {
    const data = await api.get("/subscriptions", { after: state.starts.at(-1), limit: PAGE }, stop);
    countLetters(data.subscriptions, stop).then(() => signal.aborted || show());
    return data;
  };
  const refresh = poll(EVERY, signal, load, update, (error) => {
    if (state.data) late.show(error);
    else list.fail(error, refresh);
  });

  function update(data) {
    late.clear();
    state.data = data;
    show();
    pages(data.next);
  }

  function show() {
    if (!state.data) return;
    const wanted = state.text.toLowerCase();
    const all = state.data.subscriptions;
    const found = all.filter((each) => `${each.name}\n${each.topic}`.toLowerCase().includes(wanted));
    if (found.length) {
      if (!list.element.contains(rows.element)) list.show(rows.element);
      rows.show(withLetters(found));
    } else if (all.length) {
      const where = state.data.next ? " on this page" : "";
      list.show(empty(`No subscription${where} contains “${visible(state.text)}”.`, "The filter looks at the names of subscriptions and topics."));
    } else list.show(empty("No subscriptions yet.", "A reader creates one: ", h("code", {}, "oncecast get news --subscription reader")));
  }

  function pages(next) {
    const turn = (to) => () => {
      state.starts = to;
      refresh();
    };
    const { starts } = state;
    turns.show(`Page ${starts.length}`, { back: starts.length > 1 && turn(starts.slice(0, -1)), on: next && turn([...starts, next]) });
    turns.element.hidden = starts.length < 2 && !next;
  }
}
