// Draws operations of clients as bars, one lane for each client.

import { FONT, fitted, palette } from "playback/palette.js";
import { compared } from "playback/stage.js";

const LANE = 26; // height of an operation whose client does one thing at a time
const STACKED = 17; // height of one of several operations at the same time
const STACK_MAX = 8; // more operations of a client at the same time are drawn over each other
const NAMES = 142;
const HEAD = 22;
const DRAWN_MAX = 6000;
const TEXTS_MAX = 400;

export class Lanes {
  constructor(canvas, model, view) {
    this.canvas = canvas;
    this.model = model;
    this.view = view;
    const { columns: c, header: h } = model;
    this.calls = c["ops.call"];
    this.returned = c["ops.returned"];
    this.count = this.calls.length;
    const clients = new Map();
    for (let at = 0; at < this.count; at++) clients.set(c["ops.client"][at], h.words[c["ops.client"][at]]);
    this.clients = [...clients].sort((one, other) => compared(one[1], other[1]));
    this.stack();
    this.drawn = [];
    this.top = 0;
    this.span = this.naturalSpan();
  }

  /** Give operations that overlap different rows, and compute the tops of the lanes. */
  stack() {
    const client = this.model.columns["ops.client"];
    this.rowOf = new Uint8Array(this.count);
    const ends = new Map(this.clients.map(([number]) => [number, []]));
    for (let at = 0; at < this.count; at++) {
      const rows = ends.get(client[at]);
      let row = rows.findIndex((end) => end <= this.calls[at]);
      if (row < 0) row = Math.min(rows.length, STACK_MAX - 1);
      rows[row] = this.returned[at] < 0 ? Infinity : Math.max(this.returned[at], this.calls[at] + 1);
      this.rowOf[at] = row;
    }
    let top = 0;
    this.lanes = new Map();
    for (const [number, name] of this.clients) {
      const rows = Math.max(1, ends.get(number).length);
      const height = rows === 1 ? LANE : STACKED;
      this.lanes.set(number, { name, top, height, tall: rows * height + (rows === 1 ? 0 : 6) });
      top += this.lanes.get(number).tall;
    }
    this.tall = top;
  }

  /** Show the counterexample, or about forty operations. */
  naturalSpan() {
    const blamed = this.blamed();
    if (blamed.length) {
      const ends = blamed.flatMap((at) => [this.calls[at], Math.max(this.calls[at], this.returned[at])]);
      return Math.max(1000, (Math.max(...ends) - Math.min(...ends)) * 1.25);
    }
    return Math.min(this.model.end, Math.max(1000, (this.model.end / Math.max(1, this.count)) * 40));
  }

  /** Return the time in the middle of the counterexample, or undefined. */
  middleOfBlamed() {
    const ends = this.blamed().flatMap((at) => [this.calls[at], Math.max(this.calls[at], this.returned[at])]);
    return ends.length ? (Math.min(...ends) + Math.max(...ends)) / 2 : undefined;
  }

  blamed() {
    const marks = this.model.columns["ops.blamed"];
    const found = [];
    for (let at = 0; at < this.count; at++) if (marks[at]) found.push(at);
    return found;
  }

  zoom(factor) {
    this.span = Math.max(200, Math.min(this.model.end * 1.1, this.span * factor));
  }

  scroll(pixels) {
    this.top += pixels;
  }

  draw(cursor) {
    const { context: c, width, height } = fitted(this.canvas);
    const p = palette();
    c.clearRect(0, 0, width, height);
    const inner = width - NAMES - 8;
    const from = cursor.time - this.span / 2;
    const toX = (time) => NAMES + ((time - from) / this.span) * inner;
    this.top = Math.max(0, Math.min(this.top, this.tall + HEAD - height + 12));
    this.drawn = [];
    c.save();
    c.beginPath();
    c.rect(0, HEAD, width, height - HEAD);
    c.clip();
    this.drawNames(c, p, width, height);
    c.beginPath();
    c.rect(NAMES, HEAD, inner + 8, height - HEAD);
    c.clip();
    for (let at = 0; at < this.count && this.drawn.length < DRAWN_MAX; at++) {
      const open = this.returned[at] < 0;
      const end = open ? this.model.end : this.returned[at];
      if (this.calls[at] > from + this.span) break;
      if (end < from) continue;
      const lane = this.lanes.get(this.model.columns["ops.client"][at]);
      const y = HEAD + lane.top + this.rowOf[at] * lane.height + (lane.tall > LANE ? 3 : 0) - this.top;
      if (y > HEAD - LANE && y < height) this.drawOperation(c, p, at, toX(this.calls[at]), toX(end), y, lane.height, open);
    }
    if (this.drawn.length < TEXTS_MAX) this.drawTexts(c, p, width);
    c.restore();
    this.drawAxis(c, p, cursor, from, toX, width, height);
  }

  drawNames(c, p, width, height) {
    c.font = `500 11px ${FONT}`;
    c.textBaseline = "middle";
    c.textAlign = "left";
    let even = true;
    for (const { name, top, tall } of this.lanes.values()) {
      even = !even;
      const y = HEAD + top - this.top;
      if (y < HEAD - tall || y > height) continue;
      if (even) {
        c.fillStyle = p.ground;
        c.fillRect(0, y, width, tall);
      }
      c.fillStyle = p.text;
      const plain = name.replace(/^client\//, "").replace(/^(.+) as \1$/, "$1");
      const shown = plain.length > 20 ? `${plain.slice(0, 7)}…${plain.slice(-12)}` : plain;
      c.fillText(shown, 10, y + tall / 2);
    }
  }

  drawOperation(c, p, at, x, end, y, tall, open) {
    const { columns, header } = this.model;
    const wide = Math.max(end - x, 5);
    const failed = columns["ops.error"][at] !== 0;
    const blamed = columns["ops.blamed"][at] === 1;
    const hue = kindHue(header.words[columns["ops.kind"][at]]);
    const fill = p.dark ? `hsl(${hue} 42% 34%)` : `hsl(${hue} 62% 84%)`;
    c.fillStyle = failed ? p["danger-soft"] : fill;
    c.strokeStyle = blamed ? p.danger : failed ? p.danger : p.dark ? `hsl(${hue} 52% 60%)` : `hsl(${hue} 45% 46%)`;
    c.lineWidth = blamed ? 2.5 : 1;
    c.setLineDash(open ? [4, 3] : []);
    c.beginPath();
    const gap = tall === LANE ? 4 : 1.5;
    c.roundRect(x, y + gap, wide, tall - 2 * gap, Math.min(4, wide / 2));
    c.fill();
    c.stroke();
    c.setLineDash([]);
    this.drawn.push({ at, x, y, wide, tall });
  }

  /** Write the operations into their bars, or beside them if there is space. */
  drawTexts(c, p, width) {
    const { columns, header } = this.model;
    const ends = new Map(); // where the next bar of a lane begins
    c.fillStyle = p.text;
    c.font = `500 10.5px ${FONT}`;
    c.textAlign = "left";
    for (const { at, x, y, wide, tall } of [...this.drawn].reverse()) {
      const text = header.strings[columns["ops.text"][at]];
      const next = ends.get(y) ?? width;
      ends.set(y, x);
      const beside = next - x - wide > 60 && c.measureText(text).width > wide - 10;
      const from = beside ? x + wide + 5 : Math.max(x, NAMES) + 6;
      const to = beside ? next - 4 : x + wide - 4;
      if (to - from < 20) continue;
      c.save();
      c.beginPath();
      c.rect(from, y, to - from, tall);
      c.clip();
      c.fillText(text, from, y + tall / 2 + 0.5);
      c.restore();
    }
  }

  drawAxis(c, p, cursor, from, toX, width, height) {
    const step = niceStep(this.span / 6);
    c.font = `500 10px ${FONT}`;
    c.fillStyle = p.muted;
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (let time = Math.ceil(from / step) * step; time < from + this.span; time += step) {
      if (time < 0) continue;
      c.fillText(`${Number((time / 1e6).toFixed(6))} s`, toX(time), HEAD / 2);
    }
    c.strokeStyle = p.accent;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(toX(cursor.time), HEAD);
    c.lineTo(toX(cursor.time), height);
    c.stroke();
  }

  /** Return the operation at a point, or null. */
  hit(x, y) {
    for (const each of this.drawn) {
      if (x >= each.x - 2 && x <= each.x + each.wide + 2 && y >= each.y && y < each.y + each.tall) return { operation: each.at };
    }
    return null;
  }

  text(at) {
    const { columns: c, header: h } = this.model;
    return `${h.words[c["ops.client"][at]]}: ${h.strings[c["ops.text"][at]]}`;
  }
}

function kindHue(kind) {
  let hash = 7;
  for (const letter of kind) hash = (hash * 31 + letter.charCodeAt(0)) % 360;
  return hash;
}

export function niceStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted);
}
