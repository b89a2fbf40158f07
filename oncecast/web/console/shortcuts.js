// Keyboard shortcuts. They do nothing while the user types, or while a dialog is open.

import { h } from "./dom.js";

const PAIR_MS = 1200;

const GO = { o: "#/", t: "#/topics", s: "#/subscriptions", c: "#/cluster", l: "#/tail" };

const HELP = [
  ["/", "Search on this page"],
  ["g o", "Go to the overview"],
  ["g t", "Go to topics"],
  ["g s", "Go to subscriptions"],
  ["g c", "Go to the cluster"],
  ["g l", "Go to the live tail"],
  ["n", "Create a topic, or put a message"],
  ["p", "Pause or resume the live tail"],
  ["d", "Change the theme"],
  ["?", "Show this help"],
  ["Esc", "Close a dialog"],
];

export function listen(onTheme) {
  let pair = 0;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const second = performance.now() - pair < PAIR_MS;
    pair = 0;
    if (second && GO[event.key]) location.hash = GO[event.key];
    else if (event.key === "g") pair = performance.now();
    else if (event.key === "?") help();
    else if (event.key === "d") onTheme();
    else if (event.key === "/") reach("[data-search]", (each) => each.focus());
    else if (event.key === "n") reach("[data-new]", (each) => each.click());
    else if (event.key === "p") reach("[data-pause]", (each) => each.click());
    else return;
    if (event.key !== "g") event.preventDefault();
  });
}

function reach(selector, act) {
  const found = document.querySelector(`main ${selector}:not([disabled])`);
  if (found) act(found);
}

function typing(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

export function help() {
  const close = h("button", { class: "primary", autofocus: true }, "Close");
  const keys = (text) => text.split(" ").map((each) => h("kbd", {}, each));
  const dialog = h(
    "dialog",
    { "aria-labelledby": "help-title" },
    h(
      "form",
      { method: "dialog" },
      h("header", {}, h("h2", { id: "help-title" }, "Keyboard shortcuts")),
      h("dl", { class: "keys dialog-body" }, HELP.map(([key, text]) => h("div", {}, h("dt", {}, keys(key)), h("dd", {}, text)))),
      h("footer", {}, close),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
