// The ring as a picture: each group owns the arc of keys before its position.

import * as api from "./api.js";
import { trouble } from "./dialog.js";
import { h, put, svg } from "./dom.js";
import { bytes, count, percent, visible } from "./format.js";
import { badge, empty, loading, name } from "./parts.js";
import { poll } from "./poll.js";
import { topicLink } from "./router.js";

const EVERY = 4; // seconds
const R = 150; // radius of the ring
const WIDTH = 22; // width of an arc
const TONES = 8;
const POSTS_MAX = 40; // groups up to which the picture has large posts
const APART = 0.03; // smallest share of the ring between two labels
const TOPICS_MAX = 12; // topics that the side panel names

/** Return the place of a hexadecimal position on the ring, from 0 to 1. */
export function share(position) {
  return parseInt(position.slice(0, 12).padEnd(12, "0"), 16) / 16 ** 12;
}

// The last arc touches the first, so they must not have the same colour.
const tone = (at, size) => (at && at === size - 1 && at % TONES === 0 ? TONES / 2 : at % TONES);

const point = (at, radius) => [radius * Math.sin(2 * Math.PI * at), -radius * Math.cos(2 * Math.PI * at)];
const text = (at, radius) => point(at, radius).map((each) => each.toFixed(2)).join(" ");

/** Return the path of an arc from `low` to `high`, clockwise. */
export function arc(low, high, radius) {
  const span = (high - low + 1) % 1 || 1;
  const middle = low + span / 2;
  return `M${text(low, radius)}A${radius} ${radius} 0 0 1 ${text(middle, radius)}A${radius} ${radius} 0 0 1 ${text(low + span, radius)}`;
}

export function ringView({ content, signal }) {
  const state = { ring: null, chosen: null };
  const picture = h("div", { class: "ring-picture panel" });
  const side = h("section", { class: "panel ring-side", "aria-live": "polite" });
  const list = h("div");
  put(content, loading());
  const refresh = poll(EVERY, signal, (stop) => api.get("/ring", {}, stop), update, (error) => {
    if (!state.ring) put(content, h("div", { class: "panel" }, trouble(error, refresh)));
  });

  function update(ring) {
    if (!state.ring) put(content, h("div", { class: "ring" }, picture, h("div", { class: "stack" }, side, list)));
    state.ring = ring;
    const founders = new Map(ring.processes.map((each) => [each.group, each.process]));
    const groups = ring.groups.map((each) => ({ ...each, process: founders.get(each.group) })).sort((a, b) => (a.position < b.position ? -1 : 1));
    if (!groups.some((each) => each.group === state.chosen)) state.chosen = groups[0]?.group ?? null;
    show(groups);
  }

  function show(groups) {
    const focused = document.activeElement?.dataset?.group;
    put(picture, draw(groups, state, choose));
    put(side, groups.length ? sideView(groups.find((each) => each.group === state.chosen)) : empty("The ring has no groups yet."));
    put(list, groupList(groups, state, choose));
    if (focused) content.querySelector(`button[data-group="${CSS.escape(focused)}"]`)?.focus();

    function choose(group) {
      state.chosen = group;
      show(groups);
    }
  }
}

function draw(groups, state, choose) {
  const owned = groups.filter((each) => each.low);
  const arcs = groups.map((each, at) => {
    if (!each.low) return null;
    const chosen = each.group === state.chosen;
    return svg("path", {
      class: `arc ring-${tone(at, groups.length)} ${chosen ? "chosen" : ""} ${each.leader ? "" : "unled"}`,
      d: arc(share(each.low), share(each.position), R), "stroke-width": chosen ? WIDTH + 8 : WIDTH,
      onclick: () => choose(each.group),
    }, svg("title", {}, `${visible(each.group)}: ${percent(each.share)} of the ring`));
  });
  const ticks = owned.flatMap((each) =>
    each.keys.map((topic) => {
      const at = share(topic.key);
      const [x, y] = point(at, R - WIDTH / 2 - 12);
      return svg("circle", { class: `topic-dot ${each.group === state.chosen ? "chosen" : ""}`, cx: x, cy: y, r: 3 }, svg("title", {}, visible(topic.topic)));
    }),
  );
  const few = groups.length <= POSTS_MAX;
  const labels = labelled(groups, state.chosen);
  const posts = groups.map((each) => {
    const at = share(each.position);
    const [x, y] = point(at, R);
    const [lx, ly] = point(at, R + 26);
    const side = Math.abs(lx) < 30 ? "middle" : lx > 0 ? "start" : "end";
    return [
      svg("circle", { class: `post ${each.leader ? "" : "unled"}`, cx: x, cy: y, r: few ? 5 : 2.5 }, svg("title", {}, visible(each.process ?? each.group))),
      labels.has(each.group) && svg("text", { class: "post-label", x: lx, y: ly + 4, "text-anchor": side }, labels.get(each.group)),
    ];
  });
  const topics = groups.reduce((sum, each) => sum + (each.topics ?? 0), 0);
  return [
    svg("svg", { viewBox: "-240 -200 480 400", role: "img", "aria-label": `Ring of ${groups.length} groups. The list of groups has the same facts.` },
      svg("circle", { class: "track", r: R, "stroke-width": WIDTH }),
      arcs, ticks, posts,
      svg("text", { class: "ring-count", y: -2 }, count(groups.length)),
      svg("text", { class: "ring-word", y: 20 }, groups.length === 1 ? "group" : "groups"),
      svg("text", { class: "ring-word", y: 40 }, `${count(topics)} topics`)),
    h("p", { class: "muted caption" }, "Each arc is the range of keys that a group owns. It ends at the group’s position. Dots are topics at their keys."),
  ];
}

/** Choose labels that do not overlap. The chosen group always has one. */
function labelled(groups, chosen) {
  const hosts = new Set(groups.map((each) => (each.process ?? "").split(":")[0]));
  const text = ({ process, group }) => {
    const shown = visible(process ?? group);
    if (process && hosts.size === 1) return shown.slice(shown.lastIndexOf(":"));
    return shown.length > 14 ? `…${shown.slice(-13)}` : shown;
  };
  const found = new Map();
  const taken = [];
  const first = groups.filter((each) => each.group === chosen);
  for (const each of [...first, ...groups]) {
    const at = share(each.position);
    const near = taken.some((other) => Math.min(Math.abs(other - at), 1 - Math.abs(other - at)) < APART);
    if (near) continue;
    taken.push(at);
    found.set(each.group, text(each));
  }
  return found;
}

function sideView(group) {
  const names = group.keys;
  const more = (group.topics ?? names.length) - Math.min(names.length, TOPICS_MAX);
  const facts = [
    ["Process", group.process ? name(group.process) : "absent"],
    ["Position", h("code", {}, group.position.slice(0, 16))],
    ["Keys after", group.low ? h("code", {}, group.low.slice(0, 16)) : "none"],
    ["Share of the ring", percent(group.share)],
    ["Leader", group.leader ? name(group.leader.split("/")[0]) : "none"],
    ["Replicas", group.nodes.map((each, at) => [at ? ", " : "", name(each.split("/")[0])])],
    ["Applied slot", count(group.applied)],
    ["Topics", group.bytes === null ? count(group.topics) : `${count(group.topics)}, ${bytes(group.bytes)}`],
  ];
  return [
    h("div", { class: "panel-head" }, h("h2", {}, name(group.group)),
      badge(group.leader ? "good" : "bad", group.leader ? "led" : "no leader"), group.retired && badge("warn", "leaving")),
    h("dl", { class: "facts column" }, facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", { class: "num" }, value)))),
    names.length > 0 && h("ul", { class: "chips" }, names.slice(0, TOPICS_MAX).map((each) => h("li", {}, h("a", { href: topicLink(each.topic) }, name(each.topic)))), more > 0 && h("li", { class: "muted" }, `and ${count(more)} more`)),
  ];
}

const groupList = (groups, state, choose) =>
  h("ul", { class: "group-list panel", "aria-label": "Groups" }, groups.map((each, at) =>
    h("li", {}, h("button", { "aria-pressed": String(each.group === state.chosen), data: { group: each.group }, onclick: () => choose(each.group) },
      h("i", { class: `swatch ring-${tone(at, groups.length)}`, "aria-hidden": "true" }),
      h("span", { class: "group-name" }, visible(each.group)),
      h("span", { class: "muted num end" }, each.low ? percent(each.share) : each.retired ? "leaving" : "joining"),
      !each.leader && badge("bad", "no leader")))));
