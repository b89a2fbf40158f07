// One topic: its messages, subscriptions, tree and settings, each in a tab.

import * as api from "../api.js";
import { confirm, notify, trouble } from "../dialog.js";
import { h, put } from "../dom.js";
import { bytes, count, keeps } from "../format.js";
import { countLetters, withLetters } from "../letters.js";
import { createSubscription, subscriptionTable } from "../listing.js";
import { browse } from "../messages.js";
import { monitor } from "../monitor.js";
import { empty, head, loading, name, stale, strip, table, tabs } from "../parts.js";
import { policyFields, readPolicy } from "../policy.js";
import { poll } from "../poll.js";
import { putDialog } from "../putting.js";
import { link, topicLink } from "../router.js";
import { treeView } from "../tree.js";

const EVERY = 3; // seconds

export const topic = { title: ({ topic: which }) => [which, "topics"], render };

function render({ main, parameters, query, signal }) {
  const which = parameters.topic;
  const seen = { topic: null, heard: new EventTarget() };
  const late = stale();
  const facts = strip(["Messages", "First offset", "Next offset", "Size", "Subscriptions", "Keeps"]);
  facts.words("Keeps");
  facts.element.hidden = true;
  const sections = h("div", { class: "slot" });
  const content = h("div", { class: "stack" }, loading());
  const actions = [
    h("a", { class: "button", href: link(["tail"], { topic: which }) }, "Live tail"),
    h("button", { class: "primary", data: { new: "" }, onclick: () => putOne() }, "Put a message"),
  ];
  put(main, head(name(which), { crumbs: [["Topics", "#/topics"]], actions }), late.element, facts.element, sections, content);

  const refresh = poll(EVERY, signal, (stop) => api.get(api.path("topics", which), {}, stop), update, (error) => {
    if (seen.topic && error.status !== 404) late.show(error);
    else put(content, h("div", { class: "panel" }, trouble(error, refresh)));
  });

  async function putOne() {
    const done = await putDialog(which);
    if (!done) return;
    notify(outcome(done));
    refresh();
    seen.heard.dispatchEvent(new Event("put"));
  }

  function update(data) {
    const first = seen.topic === null;
    seen.topic = data;
    late.clear();
    facts.element.hidden = false;
    facts.set({
      Messages: count(data.end - data.first),
      "First offset": count(data.first),
      "Next offset": count(data.end),
      Size: bytes(data.bytes),
      Subscriptions: count(data.subscription_count),
      Keeps: keeps(data.policy),
    });
    if (first) {
      const found = places(which, data.partitions.length > 0);
      // Messages are put to a partition, and read from it.
      for (const each of data.partitions.length ? actions : []) each.remove();
      const tab = query.get("tab") ?? found[0][0];
      put(sections, tabs(found, tab));
      TABS[tab]?.({ which, content, seen, signal, refresh, query });
    }
    seen.heard.dispatchEvent(new Event("change"));
  }
}

/** Describe what became of a put. A repeated put may not know its offset. */
function outcome({ offset, kept }) {
  const where = offset === null ? "The message is stored" : `The message is stored at offset ${count(offset)}`;
  return kept === false ? `${where}, but nothing keeps it: the topic has no subscription and no retention.` : `${where}.`;
}

function places(which, split) {
  const found = [split ? ["partitions", "Partitions"] : ["messages", "Messages"], ["subscriptions", "Subscriptions"]];
  if (monitor.overview?.ring) found.push(["tree", "Tree"]);
  found.push(["settings", "Settings"]);
  return found.map(([key, text]) => [key, text, topicLink(which, key === found[0][0] ? {} : { tab: key })]);
}

const TABS = {
  messages: ({ which, content, seen, signal, query }) => browse({ which, content, seen, signal, query }),
  partitions: partitionTab,
  subscriptions: subscriptionTab,
  tree: ({ which, content, signal }) => treeView({ which, content, signal }),
  settings: settingsTab,
};

function subscriptionTab({ which, content, seen, signal, refresh }) {
  const rows = subscriptionTable({ withTopic: false });
  const create = h("button", { onclick: () => createSubscription(which).then((done) => done && refresh()) }, "Create subscription");
  const place = h("div");
  put(content, h("div", { class: "bar end" }, create), place);
  const show = () => {
    const found = seen.topic.subscriptions ?? [];
    if (!found.length) put(place, empty("This topic has no subscriptions.", "Messages are kept until a subscription acknowledges them, or as the policy says."));
    else if (!place.contains(rows.element)) put(place, rows.element);
    rows.show(withLetters(found));
  };
  const update = () => {
    show();
    countLetters(seen.topic.subscriptions ?? [], signal).then(() => signal.aborted || show());
  };
  seen.heard.addEventListener("change", update, { signal });
  update();
}

/** Show the partitions. Each is a topic of its own, with its own page. */
function partitionTab({ content, seen, signal }) {
  const rows = table(
    [
      { head: "Partition", class: "wide", fixed: true, cell: (each) => h("a", { href: topicLink(each.name) }, name(each.name)) },
      { head: "Messages", class: "num", cell: (each) => count(each.end - each.first) },
      { head: "Next offset", class: "num", cell: (each) => count(each.end) },
      { head: "Size", class: "num", cell: (each) => bytes(each.bytes) },
    ],
    (each) => each.name,
    { label: "Partitions" },
  );
  put(content, rows.element);
  const show = () => rows.show(seen.topic.partitions);
  seen.heard.addEventListener("change", show, { signal });
  show();
}

function settingsTab({ which, content, seen, refresh }) {
  const fault = h("div", { role: "alert" });
  const save = h("button", { class: "primary" }, "Save");
  const form = h("form", { class: "panel stack form", "aria-labelledby": "keep-title" },
    h("h2", { id: "keep-title" }, "Retention"), policyFields(seen.topic.policy ?? {}), fault, h("div", { class: "bar" }, save));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    save.disabled = true;
    put(fault);
    try {
      await api.patch(api.path("topics", which), readPolicy(form));
      notify("The retention policy is saved.");
      refresh();
    } catch (error) {
      put(fault, trouble(error));
    }
    save.disabled = false;
  });
  const destroy = h("button", { class: "danger", onclick: () => destroyTopic(which) }, "Delete topic");
  put(content, form,
    h("section", { class: "panel stack form", "aria-labelledby": "delete-title" },
      h("h2", { id: "delete-title" }, "Delete this topic"),
      h("p", { class: "muted" }, "This deletes all its messages and subscriptions."), h("div", { class: "bar" }, destroy)));
}

async function destroyTopic(which) {
  const done = await confirm({
    title: "Delete topic",
    text: ["This deletes the topic ", name(which), " with all its messages and subscriptions. It cannot be undone."],
    word: which,
    action: "Delete topic",
    act: () => api.remove(api.path("topics", which)),
  });
  if (!done) return;
  notify(`Topic ${which} is deleted.`);
  location.hash = "#/topics";
}
