// Pieces that several pages share.

import { trouble } from "./dialog.js";
import { h, keyed, put, say } from "./dom.js";
import { visible } from "./format.js";

/** Return a name so that hostile characters can neither hide nor reorder the text around it. */
export const name = (text, props) => h("bdi", { class: "name", title: visible(text), ...props }, visible(text));

export const badge = (tone, text) => h("span", { class: `badge ${tone}` }, text);

export const empty = (title, ...text) =>
  h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("div", { class: "empty-text" }, text));

export const loading = (text = "Loading…") =>
  h("div", { class: "loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);

/** Return the head of a page: breadcrumbs, the title, and actions. */
export function head(title, { crumbs = [], actions = [], note } = {}) {
  return h(
    "header",
    { class: "page-head" },
    crumbs.length > 0 &&
      h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, crumbs.map(([text, href]) => h("a", { href }, name(text)))),
    h("div", { class: "page-title" }, h("h1", { tabindex: "-1" }, title), note, h("div", { class: "actions" }, actions)),
  );
}

/** Return a strip of labelled numbers. `set({label: text})` updates them. */
export function strip(labels, hints = {}) {
  const values = new Map(labels.map((label) => [label, h("dd", { class: "num" }, "–")]));
  const element = h(
    "dl",
    { class: "strip panel" },
    labels.map((label) => h("div", {}, h("dt", { title: hints[label] }, label), values.get(label))),
  );
  return {
    element,
    set(texts) {
      for (const [label, text] of Object.entries(texts)) say(values.get(label), text);
    },
    /** Show long words in the size of text. */
    words(label) {
      values.get(label).classList.add("words");
    },
    warn(label, on) {
      values.get(label).classList.toggle("warn-text", on);
    },
  };
}

/**
 * Return a table with `columns` of {head, cell(item, row), class}. `show(items)` updates it and
 * keeps the row of each key, so that the focus survives.
 */
export function table(columns, keyOf, { label, onRow } = {}) {
  const body = h("tbody");
  const element = h(
    "div",
    { class: "table-frame", role: "region", "aria-label": label, tabindex: "0" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col", class: each.class }, each.head)))),
      body,
    ),
  );
  const make = (item) => {
    const row = h("tr", {}, columns.map((each) => h("td", { class: each.class })));
    onRow?.(row, item);
    return row;
  };
  const update = (row, item) => {
    columns.forEach((column, at) => {
      const content = column.cell(item, row);
      const cell = row.cells[at];
      if (content instanceof Node || Array.isArray(content)) {
        if (!column.fixed || !cell.firstChild) put(cell, content);
      } else say(cell, content ?? "");
    });
  };
  return { element, body, show: (items) => keyed(body, items, keyOf, make, update) };
}

/** Return tabs as links, with the current one marked. `items` has [key, text, href]. */
export function tabs(items, current) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Sections" },
    items.map(([key, text, href]) => h("a", { href, "aria-current": key === current ? "page" : null }, text)),
  );
}

let fields = 0;

/** Return a labelled control. Screen readers read the hint after the name. */
export function field(label, control, hint) {
  const id = `field-${++fields}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("small", { id: `${id}-hint` }, hint));
}

export function select(options, value, props) {
  const element = h("select", props, options.map(([key, text]) => h("option", { value: key }, text)));
  element.value = value;
  return element;
}

/** Return a group of buttons of which one is pressed. */
export function segmented(label, options, value, onPick) {
  const buttons = options.map(([key, text]) =>
    h("button", { type: "button", "aria-pressed": String(key === value), onclick: () => pick(key), data: { key } }, text),
  );
  function pick(key) {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.key === key));
    onPick(key);
  }
  return h("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
}

/** Return a search box. `onInput(text)` runs when the user stops typing for a moment. */
export function search(label, onInput, value = "") {
  let timer;
  const input = h("input", {
    type: "search", placeholder: label, "aria-label": label, value, autocomplete: "off", spellcheck: "false",
    data: { search: "" },
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => onInput(input.value), 200);
    },
  });
  return input;
}

/** Return buttons for the previous and the next page, and words about the current one. */
export function pager(label) {
  const acts = {};
  const words = h("span", { class: "muted num" });
  const back = h("button", { class: "quiet", onclick: () => acts.back() }, "Previous");
  const on = h("button", { class: "quiet", onclick: () => acts.on() }, "Next");
  return {
    element: h("nav", { class: "pager", "aria-label": label }, words, back, on),
    show(text, turns) {
      Object.assign(acts, turns);
      say(words, text);
      back.disabled = !turns.back;
      on.disabled = !turns.on;
    },
  };
}

/** Return a place whose content is replaced by data, a loading state or an error. */
export function slot(...content) {
  const element = h("div", { class: "slot" }, content);
  return {
    element,
    show: (...children) => put(element, children),
    wait: (text) => put(element, loading(text)),
    fail: (error, retry) => put(element, h("div", { class: "panel" }, trouble(error, retry))),
  };
}

/** Run `work` while a button is disabled, and show an error in a notice-like box. */
export async function busy(button, work) {
  button.disabled = true;
  try {
    return await work();
  } finally {
    button.disabled = false;
  }
}

/** Return a banner that a polling page shows while its data is out of date. */
export function stale() {
  const element = h("div", { class: "stale", role: "status" });
  return {
    element,
    show: (error) => put(element, trouble(error)),
    clear: () => element.firstChild && put(element),
  };
}
