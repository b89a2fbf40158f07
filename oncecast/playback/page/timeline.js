// Draws the time line: activity, faults, the state of each node, search hits and the violation.

import { FONT, fitted, palette } from "playback/palette.js";
import { niceStep } from "playback/lanes.js";
import { compared } from "playback/stage.js";

const NAMES = 64;
const AXIS = 24;
const ACTIVITY = 26;
const LANE = 11;
const LANES_MAX = 12;
const NETWORK = ["partition", "hold", "slow", "loss", "duplication"];

export class Timeline {
  constructor(canvas, model, view) {
    this.canvas = canvas;
    this.model = model;
    this.view = view;
    this.from = 0;
    this.to = model.end;
    this.marks = [];
    this.nodes = this.chosenNodes();
    this.spans = new Map(this.nodes.map((node) => [node, this.spansOf(node)]));
    this.network = model.header.faults.length > 0;
    this.crowd = this.nodes.length === 0 && model.hasKey("up") ? this.downTimes() : null;
    this.terms = this.leaderTerms();
    this.backdrop = null;
  }

  get height() {
    const lanes = this.nodes.length + (this.network ? 1 : 0) + (this.crowd ? 1 : 0);
    return AXIS + ACTIVITY + lanes * LANE + 8;
  }

  chosenNodes() {
    const { model } = this;
    if (!model.hasKey("up")) return [];
    const all = [];
    for (let node = 1; node < model.nodes.length; node++) if (model.history(node, "up").length) all.push(node);
    const main = model.hasKey("role") ? all.filter((node) => model.history(node, "role").length) : all;
    main.sort((one, other) => compared(model.nodes[one], model.nodes[other]));
    return main.length <= LANES_MAX ? main : [];
  }

  spansOf(node) {
    const { model } = this;
    return {
      down: model.spans(node, "up", 0),
      paused: model.spans(node, "paused", 1),
      leader: model.spans(node, "role", "leader"),
      candidate: model.spans(node, "role", "candidate"),
    };
  }

  /** Return the times at which a node of a large cluster is down. */
  downTimes() {
    const found = [];
    for (let node = 1; node < this.model.nodes.length; node++) found.push(...this.model.spans(node, "up", 0));
    return found;
  }

  leaderTerms() {
    return this.nodes.flatMap((node) => this.spans.get(node).leader.map(([begin]) => begin)).sort((one, other) => one - other);
  }

  // -- the visible range --

  toX(time) {
    return NAMES + ((time - this.from) / (this.to - this.from)) * (this.width - NAMES - 10);
  }

  toTime(x) {
    const time = this.from + ((x - NAMES) / (this.width - NAMES - 10)) * (this.to - this.from);
    return Math.max(0, Math.min(this.model.end, time));
  }

  zoom(factor, time) {
    const span = Math.max(200, Math.min(this.model.end, (this.to - this.from) * factor));
    const part = (time - this.from) / (this.to - this.from);
    this.show(time - span * part, span);
  }

  show(from, span) {
    this.from = Math.max(0, Math.min(this.model.end - span, from));
    this.to = this.from + span;
    this.backdrop = null;
  }

  /** Keep the cursor visible. */
  follow(time) {
    const span = this.to - this.from;
    if (time < this.from || time > this.to) this.show(time - span / 2, span);
  }

  setMarks(rows) {
    this.marks = rows;
    this.backdrop = null;
  }

  // -- drawing --

  draw(cursor) {
    const { context: c, width, height } = fitted(this.canvas);
    const changed = this.width !== width || this.drawnHeight !== height;
    [this.width, this.drawnHeight] = [width, height];
    if (changed || this.backdrop === null) this.paintBackdrop(c, width, height);
    c.save();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.backdrop, 0, 0);
    c.restore();
    const p = palette();
    const x = this.toX(cursor.time);
    if (x >= NAMES - 1 && x <= width) {
      c.fillStyle = p.text;
      c.fillRect(x - 0.75, AXIS - 4, 1.5, height - AXIS);
      c.beginPath();
      c.moveTo(x - 6, AXIS - 10);
      c.lineTo(x + 6, AXIS - 10);
      c.lineTo(x, AXIS - 1);
      c.fill();
    }
  }

  paintBackdrop(_, width, height) {
    const backdrop = document.createElement("canvas");
    backdrop.width = this.canvas.width;
    backdrop.height = this.canvas.height;
    const c = backdrop.getContext("2d");
    const ratio = this.canvas.width / width;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const p = palette();
    c.textBaseline = "middle";
    this.paintAxis(c, p, width, height);
    this.paintActivity(c, p, width);
    let top = AXIS + ACTIVITY + 2;
    if (this.network) {
      this.paintName(c, p.muted, "network", top);
      for (const fault of this.model.header.faults) this.paintFault(c, p, fault, top);
      top += LANE;
    }
    if (this.crowd) {
      this.paintName(c, p.muted, "crashes", top);
      for (const [begin] of this.crowd) this.paintSpan(c, p.danger, [begin, begin], top, LANE - 3);
      top += LANE;
    }
    for (const node of this.nodes) {
      this.paintNode(c, p, node, top);
      top += LANE;
    }
    this.paintMarks(c, p, height);
    this.backdrop = backdrop;
  }

  paintAxis(c, p, width, height) {
    const step = niceStep((this.to - this.from) / Math.max(3, width / 110));
    c.font = `500 10px ${FONT}`;
    c.textAlign = "center";
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) {
      const x = this.toX(time);
      c.fillStyle = p.line;
      c.fillRect(x, AXIS, 1, height - AXIS - 4);
      c.fillStyle = p.muted;
      const text = `${Number((time / 1e6).toFixed(6))} s`;
      c.fillText(text, Math.min(x, width - 4 - c.measureText(text).width / 2), 8);
    }
  }

  paintActivity(c, p, width) {
    this.paintName(c, p.muted, "steps", AXIS + ACTIVITY - 14);
    const { times } = this.model;
    const columns = Math.max(1, Math.floor(width - NAMES - 10));
    const counts = new Uint32Array(columns + 1);
    const first = this.model.rowAt(this.from - 1) + 1;
    let most = 1;
    for (let row = first; row < times.length && times[row] <= this.to; row++) {
      const column = Math.min(columns, Math.floor(((times[row] - this.from) / (this.to - this.from)) * columns));
      most = Math.max(most, ++counts[column]);
    }
    c.fillStyle = p.faint;
    for (let column = 0; column <= columns; column++) {
      const tall = Math.ceil((counts[column] / most) * (ACTIVITY - 4));
      if (tall) c.fillRect(NAMES + column, AXIS + ACTIVITY - 2 - tall, 1, tall);
    }
  }

  paintName(c, color, name, top) {
    c.font = `500 10px ${FONT}`;
    c.textAlign = "left";
    c.fillStyle = color;
    c.fillText(name.slice(0, 9), 6, top + LANE / 2);
  }

  paintSpan(c, color, [begin, end], top, tall, alpha = 1) {
    if (end < this.from || begin > this.to) return;
    const x = Math.max(NAMES, this.toX(begin));
    const wide = Math.max(1.5, Math.min(this.toX(end), this.width - 8) - x);
    c.globalAlpha = alpha;
    c.fillStyle = color;
    c.fillRect(x, top + 1, wide, tall);
    c.globalAlpha = 1;
  }

  paintFault(c, p, fault, top) {
    const color = { partition: p.danger, hold: p.hold, slow: p.warning, loss: p.warning, duplication: p.success }[fault.kind] || p.muted;
    const tall = NETWORK.indexOf(fault.kind) < 2 ? LANE - 3 : (LANE - 3) / 2;
    const end = fault.end < 0 ? this.model.end : fault.end;
    this.paintSpan(c, color, [fault.begin, end], top, tall, 0.7);
  }

  paintNode(c, p, node, top) {
    const spans = this.spans.get(node);
    this.paintName(c, p.text, this.model.nodes[node].slice(-9), top);
    this.paintSpan(c, p.line, [this.from, this.to], top + 3, 1);
    for (const span of spans.candidate) this.paintSpan(c, p.accent, span, top, LANE - 3, 0.35);
    for (const span of spans.leader) this.paintSpan(c, p.accent, span, top, LANE - 3);
    for (const span of spans.paused) this.paintSpan(c, p.warning, span, top, LANE - 3, 0.9);
    for (const span of spans.down) this.paintSpan(c, p.danger, span, top, LANE - 3, 0.85);
  }

  paintMarks(c, p, height) {
    c.fillStyle = p.accent;
    let before = -1;
    for (const row of this.marks) {
      const x = Math.round(this.toX(this.model.times[row]));
      if (x === before || x < NAMES || x > this.width) continue;
      c.fillRect(x, AXIS - 4, 1.5, 6);
      before = x;
    }
    const { violation } = this.model.header;
    if (violation === null) return;
    const x = this.toX(violation.time);
    c.fillStyle = p.danger;
    c.fillRect(x - 1, AXIS - 2, 2, height - AXIS);
    c.beginPath();
    c.arc(x, AXIS + 2, 4, 0, 2 * Math.PI);
    c.fill();
  }
}
