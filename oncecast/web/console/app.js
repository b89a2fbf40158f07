// Start the console: the frame around the pages, the router, the shortcuts and the theme.

import { h, icon, put, say } from "./dom.js";
import { visible } from "./format.js";
import { monitor } from "./monitor.js";
import { cluster } from "./pages/cluster.js";
import { overview } from "./pages/overview.js";
import { subscription } from "./pages/subscription.js";
import { subscriptions } from "./pages/subscriptions.js";
import { tail } from "./pages/tail.js";
import { topic } from "./pages/topic.js";
import { topics } from "./pages/topics.js";
import { empty, head } from "./parts.js";
import { Router } from "./router.js";
import { help, listen } from "./shortcuts.js";

const PLACES = [
  ["overview", "#/", "Overview"],
  ["topics", "#/topics", "Topics"],
  ["subscriptions", "#/subscriptions", "Subscriptions"],
  ["cluster", "#/cluster", "Cluster"],
  ["tail", "#/tail", "Live tail"],
];

const main = h("main", { id: "main", tabindex: "-1" });
const links = PLACES.map(([key, href, text]) => h("a", { href, data: { place: key } }, icon(key), h("span", {}, text)));
const status = h("span", { class: "status", role: "status" }, "Connecting…");
const lamp = h("span", { class: "lamp", "aria-hidden": "true" });

function frame() {
  const mark = h("img", { src: "icon.svg", alt: "", width: 22, height: 22 });
  const skip = h("button", { class: "skip", onclick: () => main.focus() }, "Skip to the content");
  put(
    document.body,
    skip,
    h(
      "header",
      { class: "side" },
      h("a", { class: "brand", href: "#/", "aria-label": "oncecast, overview" }, mark, h("span", {}, "oncecast")),
      h("nav", { class: "places", "aria-label": "Pages" }, links),
      h(
        "div",
        { class: "side-foot" },
        h("div", { class: "status-line" }, lamp, status),
        h("div", { class: "tools" },
          h("button", { class: "icon-button", "aria-label": "Change the theme", title: "Change the theme (d)", onclick: nextTheme }, icon("theme")),
          h("button", { class: "icon-button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: help }, icon("help")),
        ),
      ),
    ),
    main,
  );
}

// Theme

function nextTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("oncecast-theme", root.dataset.theme);
  } catch {
    // Without storage, the choice lasts until the page is closed.
  }
}

// Pages

let leave = new AbortController();

function show(page, parameters, query) {
  leave.abort();
  leave = new AbortController();
  const [title, place] = page?.title(parameters) ?? ["Not found", ""];
  document.title = `${visible(title)} · oncecast`;
  for (const each of links) {
    if (each.dataset.place === place) {
      each.setAttribute("aria-current", "page");
      each.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else each.removeAttribute("aria-current");
  }
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
  put(main);
  if (page) page.render({ main, parameters, query, signal: leave.signal });
  else put(main, head("Not found"), empty("This page does not exist.", h("a", { href: "#/" }, "Go to the overview")));
  if (moved) (main.querySelector("h1") ?? main).focus({ preventScroll: true });
  moved = true;
  scrollTo(0, 0);
}

let moved = false; // the first page does not take the focus

// Status line

function report() {
  const { overview: seen, error } = monitor;
  if (error) {
    lamp.className = "lamp bad";
    return say(status, monitor.age === null ? "Not connected" : "Reconnecting…");
  }
  const sound = seen.healthy;
  lamp.className = `lamp ${sound ? "good" : "bad"}`;
  return say(status, `${visible(seen.node ?? "node")}${sound ? "" : " · degraded"}`);
}

frame();
listen(nextTheme);
monitor.addEventListener("change", report);
monitor.start();
new Router(show)
  .add("/", overview)
  .add("/topics", topics)
  .add("/topics/:topic", topic)
  .add("/topics/:topic/subscriptions/:name", subscription)
  .add("/subscriptions", subscriptions)
  .add("/cluster", cluster)
  .add("/tail", tail)
  .go();
