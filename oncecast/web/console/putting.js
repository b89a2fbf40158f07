// The dialog that puts one message.

import { putMessage } from "./api.js";
import { fromHex, toBase64 } from "./bytes.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { field, segmented } from "./parts.js";

const FORMS = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];

/** Ask for a message and put it. Return the answer of the API, or undefined if the user cancels. */
export function putDialog(topic) {
  let form = "text";
  const value = h("textarea", { rows: 7, spellcheck: "false", class: "mono", autofocus: true });
  const key = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "none" });
  const headers = h("textarea", { rows: 2, spellcheck: "false", class: "mono", placeholder: "name: value" });
  const delay = h("input", { type: "number", min: 0, step: "any", placeholder: "now" });
  const ttl = h("input", { type: "number", min: 0, step: "any", placeholder: "no limit" });
  const forms = segmented("Form of the value", FORMS, form, (picked) => (form = picked));
  return ask({
    title: "Put a message",
    wide: true,
    body: [
      h("div", { class: "field" }, h("div", { class: "field-head" }, h("label", { for: "put-value" }, "Value"), forms), tag(value, "put-value")),
      field("Key", key),
      h("details", {}, h("summary", {}, "Headers, delay and time to live"),
        h("div", { class: "stack tight" },
          field("Headers", headers, "One per line."),
          h("div", { class: "pair" }, field("Delay in seconds", delay), field("Time to live in seconds", ttl)))),
    ],
    action: "Put",
    act: () => {
      const message = { ...encoded(value.value, form), headers: parsed(headers.value) };
      if (key.value) message.key_text = key.value;
      return putMessage(topic, message, { delay: delay.value, ttl: ttl.value });
    },
  });
}

function tag(element, id) {
  element.id = id;
  return element;
}

function encoded(text, form) {
  if (form === "json") {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Error(`the value is not JSON: ${error.message}`);
    }
  }
  if (form !== "hex") return { text };
  const value = fromHex(text);
  if (value === null) throw new Error("the value is not pairs of hex digits, such as 00 ff 7a");
  return { value };
}

function parsed(text) {
  const found = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`the header ${line.trim()} has no value; write name: value`);
    found[line.slice(0, colon).trim()] = toBase64(line.slice(colon + 1).trim());
  }
  return found;
}
