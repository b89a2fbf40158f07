// Overview: is the service healthy, how much does it do, and what needs attention.

import * as api from "../api.js";
import { chart } from "../chart.js";
import { trouble } from "../dialog.js";
import { h, put } from "../dom.js";
import { brief, byteRate, bytes, count, percent, plural, rate } from "../format.js";
import { countLetters, withLetters } from "../letters.js";
import { monitor } from "../monitor.js";
import { badge, head, loading, name, strip } from "../parts.js";
import { poll } from "../poll.js";
import { subscriptionLink } from "../router.js";
import { series } from "../series.js";

const DISK_LOW = 0.1; // share of free disk space below which the page warns
const LISTED = 500; // subscriptions that the page adds up
const ROWS = 6; // rows in a list

export const overview = { title: () => ["Overview", "overview"], render };

function render({ main, signal }) {
  const health = h("span", { class: "health" });
  const wait = h("div", { class: "slot" }, loading());
  const attention = h("section", { class: "attention", "aria-label": "Needs attention" });
  const facts = strip(["Topics", "Messages", "Stored", "Subscriptions", "Lag", "In flight", "Dead letters"], {
    Lag: "Messages that subscriptions have not acknowledged",
    "In flight": "Jobs that workers hold",
  });
  const charts = [
    chart({ title: "Puts", lines: [{ series: series("rate", "puts"), tone: "puts" }], format: rate }),
    chart({ title: "Bytes put", lines: [{ series: series("rate", "bytes"), tone: "out" }], format: byteRate, base: 2 }),
    chart({ title: "Lag", lines: [{ series: series("lag"), tone: "lag" }], format: brief }),
    chart({ title: "Messages", lines: [{ series: series("messages"), tone: "puts" }], format: brief }),
  ];
  const panel = (id) => h("section", { class: "panel", "aria-labelledby": id });
  const [disk, members, behind] = [panel("disk-title"), panel("members-title"), panel("behind-title")];
  const content = h(
    "div",
    { class: "stack", hidden: true },
    attention,
    facts.element,
    h("div", { class: "charts" }, charts.map((each) => each.element)),
    h("div", { class: "trio" }, behind, members, disk),
  );
  put(main, head("Overview", { note: health }), wait, content);
  const known = { cluster: null, subscriptions: null };

  function update() {
    const { overview: seen, error } = monitor;
    if (error) return late(error);
    put(wait);
    content.hidden = false;
    put(health, healthWords(seen));
    facts.set({ Topics: brief(seen.topics), Messages: brief(seen.messages), Stored: bytes(seen.bytes) });
    for (const each of charts) each.draw();
    disk.hidden = !seen.disk;
    if (seen.disk) put(disk, diskView(seen.disk, seen.bytes));
    return concerns();
  }

  function late(error) {
    put(wait, h("div", { class: "panel" }, trouble(error, () => monitor.refresh())));
    if (monitor.age !== null) put(health, badge("bad", "Out of date"));
  }

  function total({ subscriptions, next }) {
    const found = withLetters(subscriptions);
    known.subscriptions = found;
    const sum = (of) => found.reduce((all, each) => all + (of(each) ?? 0), 0);
    const more = next === null ? "" : "+";
    series("lag").add(Date.now() / 1000, sum((each) => each.lag));
    const letters = sum((each) => each.letters);
    facts.set({
      Subscriptions: brief(found.length) + more,
      Lag: brief(sum((each) => each.lag)) + more,
      "In flight": brief(sum((each) => each.shared?.leased)) + more,
      "Dead letters": brief(letters) + more,
    });
    facts.warn("Dead letters", letters > 0);
    put(behind, behindView(found));
    concerns();
  }

  function concerns() {
    if (monitor.overview) put(attention, worries(monitor.overview, known));
  }

  monitor.addEventListener("change", update, { signal });
  if (monitor.overview || monitor.error) update();
  const ignore = () => {}; // the status line reports a lost connection
  poll(5, signal, (stop) => api.get("/cluster", {}, stop), (seen) => {
    known.cluster = seen;
    put(members, memberView(seen));
    concerns();
  }, ignore);
  poll(5, signal, async (stop) => {
    const data = await api.get("/subscriptions", { limit: LISTED }, stop);
    countLetters(data.subscriptions, stop).then(() => signal.aborted || total(data));
    return data;
  }, total, ignore);
}

function healthWords(seen) {
  const word = seen.healthy ? "Healthy" : seen.quorum ? "Degraded" : "No quorum";
  return [
    badge(seen.healthy ? "good" : "bad", word),
    h("span", { class: "muted" }, seen.ring ? "a ring of groups" : seen.leader ? ["led by ", name(seen.leader)] : "no leader"),
    h("span", { class: "muted" }, `version ${seen.version}`),
  ];
}

/** Return a line for each thing that an operator should look at. */
function worries(seen, { cluster, subscriptions }) {
  const found = [];
  const add = (tone, text, href, more) => found.push(h("p", { class: `concern ${tone}` }, text, " ", h("a", { href }, more)));
  if (!seen.quorum) add("bad", "A group has no quorum. It acknowledges nothing until a majority of its replicas is back.", "#/cluster", "See the members");
  const away = (cluster?.groups ?? []).flatMap((each) => each.replicas).filter((each) => each.present === false).length;
  if (away) add("bad", `${plural(away, "replica does", "replicas do")} not answer.`, "#/cluster", "See the members");
  const letters = (subscriptions ?? []).filter((each) => each.letters > 0);
  const sum = letters.reduce((all, each) => all + each.letters, 0);
  if (letters.length === 1) add("warn", `${plural(sum, "dead letter waits", "dead letters wait")} for a decision.`, subscriptionLink(letters[0].topic, letters[0].name), "See them");
  else if (sum) add("warn", `${plural(sum, "dead letter waits", "dead letters wait")} for a decision.`, "#/subscriptions", "See subscriptions");
  if (seen.disk && seen.disk.free < seen.disk.total * DISK_LOW) add("warn", `Only ${bytes(seen.disk.free)} of disk space is free.`, "#/topics", "See topics");
  return found;
}

function behindView(subscriptions) {
  const worst = subscriptions.filter((each) => each.lag > 0).sort((a, b) => b.lag - a.lag);
  const row = (each) =>
    h("li", {}, h("span", { class: "two" }, h("a", { href: subscriptionLink(each.topic, each.name) }, name(each.name)), h("span", { class: "muted" }, name(each.topic))),
      h("b", { class: "num end" }, count(each.lag)));
  return [
    h("div", { class: "panel-head" }, h("h2", { id: "behind-title" }, "Largest lag"), h("a", { href: "#/subscriptions", class: "more" }, "All subscriptions")),
    worst.length
      ? h("ul", { class: "rows" }, worst.slice(0, ROWS).map(row))
      : h("p", { class: "muted" }, subscriptions.length ? "All subscriptions are up to date." : "No subscriptions yet."),
  ];
}

function diskView(disk, stored) {
  const title = h("h2", { id: "disk-title" }, "Disk");
  const share = disk.used / Math.max(disk.total, 1);
  const fact = (label, text) => h("div", {}, h("dt", {}, label), h("dd", { class: "num" }, text));
  return [
    title,
    h("meter", { min: 0, max: 1, value: share, high: 1 - DISK_LOW, "aria-label": "Used disk space" }, percent(share)),
    h("dl", { class: "facts" }, fact("Free", bytes(disk.free)), fact("Used", `${bytes(disk.used)}, ${percent(share)}`), fact("Messages", bytes(stored))),
  ];
}

function memberView({ ring, groups }) {
  const rows = ring ? groups.map(groupRow) : (groups[0]?.replicas ?? []).map(memberRow);
  return [
    h("div", { class: "panel-head" }, h("h2", { id: "members-title" }, ring ? "Groups" : "Replicas"), h("a", { href: "#/cluster", class: "more" }, "Cluster")),
    h("ul", { class: "rows" }, rows.slice(0, ROWS)),
    rows.length > ROWS && h("p", { class: "muted rest" }, `and ${count(rows.length - ROWS)} more`),
  ];
}

const groupRow = (group) =>
  h("li", {}, name(group.group), badge(group.leader ? "good" : "bad", group.leader ? "led" : "no leader"),
    h("span", { class: "muted num end" }, plural(group.replicas.length, "replica")));

function memberRow(member) {
  const away = member.present === false;
  const step = member.behind === null ? "" : member.behind ? `${count(member.behind)} behind` : "in step";
  return h("li", {}, name(member.node), badge(away ? "bad" : member.leader ? "lead" : "plain", away ? "not heard from" : member.leader ? "leader" : "replica"),
    h("span", { class: "muted num end" }, away ? "" : step));
}
