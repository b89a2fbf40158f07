// The form for a topic's retention policy.

import { h } from "./dom.js";
import { field, select } from "./parts.js";

const TIMES = [["1", "seconds"], ["60", "minutes"], ["3600", "hours"], ["86400", "days"]];
const SIZES = [["1024", "KiB"], [String(2 ** 20), "MiB"], [String(2 ** 30), "GiB"]];

/** Return the largest unit that divides a value. */
const unitOf = (value, units) => [...units].reverse().find(([size]) => value && value % size === 0)?.[0] ?? units[0][0];

function amount(name, label, value, units, hint) {
  const unit = unitOf(value, units);
  const input = h("input", {
    type: "number", name, min: 0, step: "any", inputmode: "decimal", value: value ? value / unit : "", placeholder: "no limit",
    "aria-label": label,
  });
  const control = h("span", { class: "joined" }, input, select(units, unit, { name: `${name}_unit`, "aria-label": `Unit of ${label.toLowerCase()}` }));
  return h("div", { class: "field" }, h("span", {}, label), control, hint && h("small", {}, hint));
}

const check = (name, text, on, hint) =>
  h("label", { class: "check" }, h("input", { type: "checkbox", name, checked: Boolean(on) }), h("span", {}, text, hint && h("small", {}, hint)));

export function policyFields(policy) {
  const mode = policy.keep_all ? "all" : policy.age || policy.bytes ? "limits" : "unread";
  const limits = h(
    "div",
    { class: "stack tight", hidden: mode !== "limits" },
    amount("age", "Keep for", policy.age, TIMES, "Also keep younger messages that every subscription has acknowledged."),
    amount("bytes", "Keep the newest", policy.bytes, SIZES),
    check("drop_unread", "Delete older messages even if they are unread", policy.drop_unread, "Readers are told which offsets were deleted."),
  );
  const keep = select(
    [["unread", "unread messages"], ["limits", "messages within limits"], ["all", "all messages, forever"]],
    mode,
    { name: "keep", onchange: () => (limits.hidden = keep.value !== "limits") },
  );
  return h(
    "div",
    { class: "stack tight" },
    field("Keep", keep, "By default, a message is kept until all subscriptions have acknowledged it."),
    limits,
    check("drop_expired", "Drop messages when their time to live ends", policy.drop_expired, "Otherwise they become dead letters of shared subscriptions."),
  );
}

/** Return the policy in a form as the API takes it. */
export function readPolicy(form) {
  const { elements } = form;
  const limited = elements.keep.value === "limits";
  const value = (name) => (limited ? Math.round(Number(elements[name].value || 0) * Number(elements[`${name}_unit`].value)) : 0);
  return {
    keep_all: elements.keep.value === "all",
    age: value("age"),
    bytes: value("bytes"),
    drop_unread: limited && elements.drop_unread.checked,
    drop_expired: elements.drop_expired.checked,
  };
}
