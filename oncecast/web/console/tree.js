// The multicast tree of a topic as a picture, root on the left, one row for each leaf.

import * as api from "./api.js";
import { trouble } from "./dialog.js";
import { h, put, svg } from "./dom.js";
import { plural, visible } from "./format.js";
import { empty, loading, name } from "./parts.js";
import { poll } from "./poll.js";

const EVERY = 5; // seconds
const STEP = 210; // pixels between levels
const ROW = 46; // pixels between leaves
const BEND = 60; // pixels before a node in which its edge bends
const NODES_MAX = 2000;

export function treeView({ which, content, signal }) {
  let shown = false;
  put(content, loading());
  const refresh = poll(EVERY, signal, (stop) => api.get(api.path("tree", which), {}, stop), update, (error) => {
    if (!shown) put(content, h("div", { class: "panel" }, trouble(error, refresh)));
  });

  function update(data) {
    shown = true;
    const tree = grown(data);
    put(
      content,
      h("section", { class: "panel" },
        h("dl", { class: "facts" }, fact("Owner", data.owner ? name(data.owner) : "unknown"), fact("Root", data.root ? name(data.root) : "none")),
        tree ? picture(tree) : none(data)),
    );
  }
}

/** Return the root of the tree with its children below it, or null. A process appears once. */
export function grown({ nodes, edges, root }) {
  const facts = new Map(nodes.map((each) => [each.process, each]));
  const seen = new Set();
  const grow = (process) => {
    seen.add(process);
    const below = edges.filter((each) => each.parent === process && !seen.has(each.child)).map((each) => each.child);
    for (const each of below) seen.add(each);
    return { process, readers: facts.get(process)?.readers, answers: facts.has(process), children: below.map(grow) };
  };
  return root === null || (nodes.length === 1 && !nodes[0].readers) || !nodes.length ? null : grow(root);
}

const fact = (label, value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));

const none = (data) =>
  data.gossip
    ? empty("This topic has no tree.", "Its messages are pushed by gossip.")
    : empty("This topic has no tree yet.", "A tree grows when clients read with push: ", h("code", {}, "oncecast get TOPIC --subscription NAME --push"));

/** Give each node of a tree its column and row. Return the nodes, and the numbers of both. */
export function layout(root) {
  const nodes = [];
  let rows = 0;
  let columns = 0;
  function place(node, depth, parent) {
    const mine = { node, depth, parent, row: 0 };
    nodes.push(mine);
    columns = Math.max(columns, depth + 1);
    const children = nodes.length < NODES_MAX ? (node.children ?? []) : [];
    const placed = children.map((each) => place(each, depth + 1, mine));
    mine.row = placed.length ? (placed[0].row + placed.at(-1).row) / 2 : rows++;
    return mine;
  }
  place(root, 0, null);
  return { nodes, rows, columns };
}

function picture(root) {
  const { nodes, rows, columns } = layout(root);
  const [width, height] = [columns * STEP, rows * ROW + 12];
  const x = (each) => each.depth * STEP + 12;
  const y = (each) => each.row * ROW + 24;
  const edges = nodes.filter((each) => each.parent).map((each) => {
    // The edge is straight below the label of the parent, and bends after it.
    const [fx, fy, tx, ty] = [x(each.parent) + 8, y(each.parent), x(each) - 8, y(each)];
    const [from, bend] = [tx - BEND, tx - BEND / 2];
    return svg("path", { class: "edge", d: `M${fx} ${fy}H${from}C${bend} ${fy} ${bend} ${ty} ${tx} ${ty}` });
  });
  const marks = nodes.map((each) => [
    svg("circle", { class: `tree-node ${each.parent ? "" : "root"} ${each.node.answers === false ? "away" : ""}`, cx: x(each), cy: y(each), r: 6 }),
    svg("text", { class: "tree-label", x: x(each) + 12, y: y(each) - 7 }, visible(each.node.process)),
    svg("text", { class: "tree-note", x: x(each) + 12, y: y(each) + 17 }, words(each)),
  ]);
  return h("div", { class: "tree-frame", tabindex: "0", role: "region", "aria-label": "Tree" },
    svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Tree of ${nodes.length} processes` }, edges, marks),
    h("div", { class: "only-read" }, spoken(root)));
}

function words({ node, parent }) {
  if (node.answers === false) return "does not answer";
  const readers = node.readers ? plural(node.readers, "reader") : "";
  if (!parent) return readers ? `root · ${readers}` : "root";
  return readers || "forwards";
}

/** Return the tree as a nested list for screen readers. */
const spoken = (node, parent = null) =>
  h("ul", {}, h("li", {}, `${visible(node.process)}, ${words({ node, parent })}`, (node.children ?? []).map((each) => spoken(each, node))));
