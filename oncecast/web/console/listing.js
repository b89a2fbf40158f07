// Tables of subscriptions, and the dialogs that create and move one.

import * as api from "./api.js";
import { spark } from "./chart.js";
import { ask, notify } from "./dialog.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { badge, field, name, select, table } from "./parts.js";
import { subscriptionLink, topicLink } from "./router.js";
import { series } from "./series.js";

export function subscriptionTable({ withTopic }) {
  const columns = [
    { head: "Subscription", class: "wide", fixed: true, cell: (each) => h("a", { href: subscriptionLink(each.topic, each.name) }, name(each.name)) },
    withTopic && { head: "Topic", class: "wide", fixed: true, cell: (each) => h("a", { href: topicLink(each.topic) }, name(each.topic)) },
    { head: "Readers", class: "opt", cell: reader },
    { head: "Lag", class: "num", cell: (each) => count(each.lag) },
    { head: "Lag over time", class: "opt", cell: trend },
    { head: "In flight", class: "num opt", cell: (each) => count(each.shared?.leased) },
    { head: "Retries", class: "num opt", cell: (each) => count(each.shared?.waiting) },
    { head: "Dead letters", class: "num", cell: (each) => dead(each.letters) },
  ];
  return table(columns.filter(Boolean), (each) => JSON.stringify([each.topic, each.name]), { label: "Subscriptions" });
}

const dead = (letters) => (letters > 0 ? h("b", { class: "warn-text" }, count(letters)) : count(letters));

function trend(each) {
  const line = series("lag", each.topic, each.name);
  line.add(Date.now() / 1000, each.lag);
  return spark(line.points);
}

/** Describe the readers of a subscription. */
export function reader(each) {
  const workers = each.shared?.workers;
  if (each.shared) return badge(workers ? "good" : "plain", workers === 1 ? "1 worker" : `${count(workers ?? 0)} workers`);
  return badge(each.attached ? "good" : "plain", each.attached ? "reading" : "offline");
}

// -- positions --

const POSITIONS = [["earliest", "the oldest message"], ["latest", "new messages only"], ["offset", "an offset"], ["timestamp", "a time"]];

/** Return the fields for a position, and a function that reads them. */
function position(value, choices = POSITIONS) {
  const offset = h("input", { type: "number", min: 0, step: 1, "aria-label": "Offset", hidden: true });
  const moment = h("input", { type: "datetime-local", step: 1, "aria-label": "Time", hidden: true });
  const choice = select(choices, value, {
    onchange: () => {
      offset.hidden = choice.value !== "offset";
      moment.hidden = choice.value !== "timestamp";
    },
  });
  function read() {
    if (choice.value === "offset") {
      if (offset.value === "") throw new Error("the offset is missing; type a number");
      return { offset: Number(offset.value) };
    }
    if (choice.value === "timestamp") {
      if (!moment.value) throw new Error("the time is missing; choose one");
      return { timestamp_us: new Date(moment.value).getTime() * 1000 };
    }
    return { to: choice.value };
  }
  return { element: [field("Start at", choice), offset, moment], read };
}

export function seekDialog(topic, subscription) {
  const to = position("earliest");
  return ask({
    title: "Seek",
    body: [
      h("p", {}, "Move the subscription ", name(subscription), " to another position. Messages between the two positions are delivered again, or never. The current reader continues at the new position."),
      to.element,
    ],
    action: "Move the subscription",
    danger: true,
    act: () => api.post(api.path("topics", topic, "subscriptions", subscription, "seek"), to.read()),
  });
}

export async function createSubscription(topic) {
  const input = h("input", { required: true, autocomplete: "off", spellcheck: "false" });
  const kind = select([["exclusive", "Exclusive: one reader, in order"], ["shared", "Shared: many workers, each message once"]], "exclusive");
  const at = position("latest", POSITIONS.slice(0, 3));
  const done = await ask({
    title: "Create subscription",
    body: [field("Name", input), field("Kind", kind), at.element],
    action: "Create subscription",
    act: async () => {
      const { to, offset } = at.read();
      const body = { start: to ?? offset, shared: kind.value === "shared" };
      await api.put(api.path("topics", topic, "subscriptions", input.value), body);
      return input.value;
    },
  });
  if (done) notify(`Subscription ${done} exists.`);
  return done;
}
