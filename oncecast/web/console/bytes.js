// Show bytes as JSON, text or hex. The API sends each value as base64, and as text if it is UTF-8.

import { visible, visibleBlock } from "./format.js";

export const FORMS = [["auto", "Auto"], ["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];

const HEX_MAX = 64 * 1024; // bytes that a hex view shows
const TEXT_MAX = 256 * 1024; // characters that a text view shows

export function decode(field) {
  return Uint8Array.from(atob(field?.value ?? ""), (each) => each.charCodeAt(0));
}

function sizeOf(field) {
  const base64 = field?.value ?? "";
  return (base64.length * 3) / 4 - (base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0);
}

// Characters that text rarely holds, so that bytes with one of them are shown as hex.
const BINARY = /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/;

const isHex = (field, form) =>
  form === "hex" || typeof field?.text !== "string" || (form === "auto" && BINARY.test(field.text));

/** Return a value as one line of at most `limit` characters. */
export function line(field, form = "auto", limit = 200) {
  if (!field) return "";
  if (isHex(field, form)) return hexLine(field, limit);
  const text = field.text.slice(0, limit);
  const more = field.text.length > limit ? "…" : "";
  return visible(text.replace(/\s+/g, " ")) + more;
}

function hexLine(field, limit) {
  const start = (field.value ?? "").slice(0, Math.ceil(limit / 2 / 4) * 4);
  const shown = decode({ value: start });
  return [...shown].map(pair).join(" ") + (sizeOf(field) > shown.length ? " …" : "");
}

/** Return a value as a block of text, and the name of the form that it is shown in. */
export function block(field, form = "auto") {
  if (isHex(field, form)) return { form: "hex", text: dump(decode(field)) };
  if (form !== "text") {
    try {
      return { form: "json", text: cut(visibleBlock(JSON.stringify(JSON.parse(field.text), null, 2))) };
    } catch {
      if (form === "json") return { form: "text", text: cut(visibleBlock(field.text)), note: "This value is not JSON." };
    }
  }
  return { form: "text", text: cut(visibleBlock(field.text)) };
}

function cut(text) {
  if (text.length <= TEXT_MAX) return text;
  return `${text.slice(0, TEXT_MAX)}\n… ${text.length - TEXT_MAX} more characters`;
}

/** Return a hex dump: the position, 16 bytes, and the printable characters. */
export function dump(data) {
  const lines = [];
  const end = Math.min(data.length, HEX_MAX);
  for (let at = 0; at < end; at += 16) {
    const row = [...data.subarray(at, Math.min(at + 16, end))];
    const letters = row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${row.map(pair).join(" ").padEnd(47)}  ${letters}`);
  }
  if (end < data.length) lines.push(`… ${data.length - end} more bytes`);
  return lines.join("\n");
}

const pair = (byte) => byte.toString(16).padStart(2, "0");

/** Return the UTF-8 bytes of a text as base64. */
export const toBase64 = (text) => btoa(Array.from(new TextEncoder().encode(text), (each) => String.fromCharCode(each)).join(""));

/** Parse pairs of hex digits. Return base64, or null if the text is not hex. */
export function fromHex(text) {
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) return null;
  return btoa((digits.match(/../g) ?? []).map((each) => String.fromCharCode(parseInt(each, 16))).join(""));
}
