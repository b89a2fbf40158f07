// Turn numbers, times and names into text.

export const DASH = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

const known = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (known(value) ? whole.format(value) : DASH);

/** Return a number that fits into a tile: exact up to 99,999, then 100K. */
export function brief(value) {
  if (!known(value)) return DASH;
  return Math.abs(value) < 100_000 ? whole.format(value) : short.format(value);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  if (!known(value)) return DASH;
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit && size < 100 ? fine.format(size) : whole.format(size)} ${UNITS[unit]}`;
}

export function rate(value) {
  if (!known(value)) return DASH;
  return `${value < 10 ? fine.format(value) : brief(value)}/s`;
}

export const byteRate = (value) => (known(value) ? `${bytes(value)}/s` : DASH);

export const percent = (share) => (known(share) ? `${fine.format(share * 100)}%` : DASH);

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

const two = (value) => String(value).padStart(2, "0");

/** Return the local time of a timestamp in seconds, with milliseconds. */
export function time(seconds) {
  if (!known(seconds)) return DASH;
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return DASH;
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${date} ${clock(seconds)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function clock(seconds) {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function duration(seconds) {
  if (!known(seconds)) return DASH;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${fine.format(seconds / size)} ${unit}`;
  }
  return `${fine.format(seconds)} s`;
}

/** Describe what a retention policy keeps. The words are those of `oncecast topic describe`. */
export function keeps(policy) {
  if (!policy) return DASH;
  if (policy.keep_all) return "all messages";
  const limits = [];
  if (policy.age) limits.push(duration(policy.age));
  if (policy.bytes) limits.push(bytes(policy.bytes));
  if (!limits.length) return "unread messages";
  return limits.join(" and ") + (policy.drop_unread ? "" : ", and unread messages");
}

// Characters that are invisible, or that change the order of the text around them.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Return a name in which hidden characters are visible as escapes. */
export function visible(text) {
  return String(text).replace(HIDDEN, escape);
}

/** Like `visible`, but keep line breaks and tabs, for payloads in a block of their own. */
export function visibleBlock(text) {
  return String(text).replace(HIDDEN, (each) => (each === "\n" || each === "\t" ? each : escape(each)));
}

const escape = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
