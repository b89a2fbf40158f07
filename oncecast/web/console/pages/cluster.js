// Cluster: groups, leaders and replicas; the ring as a picture; the tree of a topic.

import * as api from "../api.js";
import { h, put } from "../dom.js";
import { count, duration } from "../format.js";
import { badge, empty, head, name, slot, stale, tabs } from "../parts.js";
import { poll } from "../poll.js";
import { ringView } from "../ring.js";
import { link } from "../router.js";
import { treeView } from "../tree.js";

const EVERY = 3; // seconds

export const cluster = { title: () => ["Cluster", "cluster"], render };

function render({ main, query, signal }) {
  const tab = query.get("tab") ?? "groups";
  const late = stale();
  const sections = h("div", { class: "slot" });
  const place = slot();
  put(main, head("Cluster"), late.element, sections, place.element);
  place.wait();
  let kind = null;
  let view = null;

  const refresh = poll(EVERY, signal, (stop) => api.get("/cluster", {}, stop), update, (error) => {
    if (kind) late.show(error);
    else place.fail(error, refresh);
  });

  function update(data) {
    late.clear();
    const found = data.ring ? "ring" : "group";
    if (kind !== found) {
      kind = found;
      if (kind === "ring") put(sections, tabs(PLACES, tab));
      view = start(kind === "ring" ? tab : "groups");
    }
    view?.(data);
  }

  function start(which) {
    const content = h("div", { class: "stack" });
    place.show(content);
    if (which === "ring") return ringView({ content, signal });
    if (which === "tree") return treeTab({ content, query, signal });
    return (data) => put(content, (data.groups ?? []).length ? data.groups.map(groupPanel) : empty("The node has not joined a group yet.", "It shows its members once another member answers."));
  }
}

const PLACES = [
  ["groups", "Groups", "#/cluster"],
  ["ring", "Ring", link(["cluster"], { tab: "ring" })],
  ["tree", "Tree of a topic", link(["cluster"], { tab: "tree" })],
];

function groupPanel(group) {
  const { replicas } = group;
  const facts = [
    ["Leader", group.leader ? name(processOf(group.leader)) : "none"],
    ["Applied slot", count(group.applied)],
    group.level > 0 && ["Feature level", count(group.level)],
    group.version > 0 && ["Membership version", count(group.version)],
  ].filter(Boolean);
  return h(
    "section",
    { class: "panel group" },
    h("div", { class: "panel-head" },
      h("h2", {}, group.group ? name(group.group) : "Replica group"),
      badge(group.quorum === false || !group.leader ? "bad" : "good", group.quorum === false ? "no quorum" : group.leader ? "quorum" : "no leader"),
      h("span", { class: "muted end num" }, group.size ? `${count(replicas.length)} of ${count(group.size)} replicas` : count(replicas.length))),
    h("dl", { class: "facts" }, facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", { class: "num" }, value)))),
    h("ul", { class: "members" }, replicas.map(memberCard), group.offers.map(spareCard)),
  );
}

function memberCard(member) {
  const away = member.present === false;
  const facts = [
    member.behind === null ? "" : member.behind ? `${count(member.behind)} slots behind` : "in step",
    member.heard !== null && !member.leader ? `heard ${duration(member.heard)} ago` : "",
    member.level ? `supports level ${member.level}` : "",
  ];
  return card(member.node, away, away ? "not heard from" : member.leader ? "leader" : "replica", facts);
}

/** Return the process of a replica: on a ring, its address names the group, too. */
const processOf = (node) => node.split("/")[0];

const spareCard = (node) => card(node, false, "waiting to join", []);

const card = (node, away, word, facts) =>
  h(
    "li",
    { class: `member ${away ? "away" : ""}` },
    h("div", { class: "member-head" }, name(processOf(node)), badge(away ? "bad" : word === "leader" ? "lead" : "plain", word)),
    facts.some(Boolean) && h("p", { class: "muted num" }, facts.filter(Boolean).join(" · ")),
  );

function treeTab({ content, query, signal }) {
  const place = h("div", { class: "stack" });
  const input = h("input", { type: "search", value: query.get("topic") ?? "", "aria-label": "Topic", placeholder: "Topic", list: "tree-topics", data: { search: "" }, autocomplete: "off", spellcheck: "false" });
  const choices = h("datalist", { id: "tree-topics" });
  const form = h("form", { class: "bar" }, input, choices, h("button", { class: "primary" }, "Show tree"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value) location.hash = link(["cluster"], { tab: "tree", topic: input.value });
  });
  put(content, form, place);
  suggest(input, choices, signal);
  if (query.get("topic")) treeView({ which: query.get("topic"), content: place, signal });
  else put(place, empty("Choose a topic.", "Its tree shows how messages travel from the owner to the readers."));
  return () => {};
}

/** Offer topics that contain the typed text. */
export function suggest(input, choices, signal) {
  let timer;
  const look = async () => {
    try {
      const data = await api.get("/topics", { search: input.value, limit: 20 }, signal);
      put(choices, (data.topics ?? []).map((each) => h("option", { value: each.name })));
    } catch {
      // Suggestions are a help, so a failure needs no message here.
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, 200);
  });
  look();
}
