// Draws the logs of the replicas: a row for each replica, a column for each slot.

import { FONT, MONO, fitted, palette, valueColor } from "playback/palette.js";
import { compared } from "playback/stage.js";

const CELL = 26;
const ROW = 20;
const NAMES = 64;
const HEAD = 20;

export class Slots {
  constructor(canvas, model, view) {
    this.canvas = canvas;
    this.model = model;
    this.view = view;
    this.columns = 4;
    this.last = null; // the last slot to show, or null to follow the newest one
    this.replicas = [];
    for (let node = 1; node < model.nodes.length; node++) {
      if (model.history(node, "applied").length) this.replicas.push(node);
    }
    this.replicas.sort((one, other) => compared(model.nodes[one], model.nodes[other]));
    this.groups = [...new Set(this.replicas.flatMap((node) => model.history(node, "group").map(([, value]) => value)))].filter(Boolean);
  }

  get height() {
    return HEAD + this.shown().length * ROW + 6;
  }

  /** Return the replicas to show: those of the chosen group, and at most 12. */
  shown() {
    const { group } = this.view;
    const { model } = this;
    const chosen = group ? this.replicas.filter((node) => model.history(node, "group").some(([, value]) => value === group)) : this.replicas;
    return chosen.slice(0, 12);
  }

  /** Show earlier or later slots. */
  scroll(slots, cursor) {
    const head = this.head(cursor);
    const last = Math.max(this.columns, Math.min(head, (this.last ?? head) + slots));
    this.last = last >= head ? null : last;
  }

  /** Make sure that a slot is visible. */
  show(slot) {
    this.last = slot + 8;
  }

  head(cursor) {
    let head = this.model.highestSlot(cursor.row);
    for (const node of this.shown()) head = Math.max(head, this.model.state(node, "applied", cursor.row) || 0);
    return head;
  }

  draw(cursor) {
    const { context: c, width, height } = fitted(this.canvas);
    const p = palette();
    c.clearRect(0, 0, width, height);
    this.columns = Math.max(4, Math.floor((width - NAMES - 8) / CELL));
    const head = this.head(cursor);
    this.first = Math.max(1, Math.min(this.last ?? head, Math.max(head, this.last ?? 0)) - this.columns + 1);
    c.textBaseline = "middle";
    this.drawHead(c, p);
    this.shown().forEach((node, at) => this.drawRow(c, p, cursor, node, HEAD + at * ROW));
    for (const slot of this.view.slots) {
      const x = NAMES + (slot - this.first) * CELL;
      if (x < NAMES || x > width) continue;
      c.strokeStyle = p.danger;
      c.lineWidth = 2;
      c.strokeRect(x - 1, HEAD - 2, CELL, this.shown().length * ROW + 2);
    }
  }

  drawHead(c, p) {
    c.font = `500 10px ${MONO}`;
    c.fillStyle = p.muted;
    c.textAlign = "left";
    c.fillText("slot", 4, HEAD / 2);
    c.textAlign = "center";
    for (let at = 0; at < this.columns; at++) {
      const slot = this.first + at;
      if (this.columns < 14 || slot % 5 === 0 || this.view.slots.includes(slot)) {
        c.fillText(String(slot), NAMES + at * CELL + CELL / 2 - 1, HEAD / 2);
      }
    }
  }

  drawRow(c, p, cursor, node, top) {
    const { model } = this;
    const up = model.state(node, "up", cursor.row) === 1;
    const applied = model.state(node, "applied", cursor.row) || 0;
    const chosen = model.state(node, "chosen", cursor.row) || 0;
    const role = up ? model.state(node, "role", cursor.row) : "";
    c.textAlign = "left";
    c.font = `600 11px ${FONT}`;
    c.fillStyle = !up ? p.danger : role === "leader" ? p.accent : p.text;
    c.fillText(model.nodes[node].slice(-8), 4, top + ROW / 2 - 1);
    for (let at = 0; at < this.columns; at++) {
      const slot = this.first + at;
      const vote = model.vote(node, slot, cursor.row);
      const x = NAMES + at * CELL;
      c.globalAlpha = up ? 1 : 0.35;
      this.drawCell(c, p, x, top, vote, slot <= applied, slot <= chosen);
      c.globalAlpha = 1;
    }
  }

  /** Accepted: an outline. Chosen: half filled. Applied: filled. */
  drawCell(c, p, x, top, vote, applied, chosen) {
    const box = [x + 1, top + 1, CELL - 4, ROW - 5];
    if (!vote && !applied && !chosen) {
      c.fillStyle = p.ground;
      c.fillRect(...box);
      return;
    }
    const color = vote ? valueColor(vote.checksum) : p.faint;
    c.fillStyle = color;
    c.strokeStyle = color;
    if (applied) c.fillRect(...box);
    else {
      c.lineWidth = 2;
      c.strokeRect(box[0] + 1, box[1] + 1, box[2] - 2, box[3] - 2);
      if (chosen || vote?.ballot === "learned") c.fillRect(box[0], box[1] + box[3] / 2, box[2], box[3] / 2);
    }
  }

  /** Return the replica and slot at a point, with its text, or null. */
  hit(x, y, cursor) {
    const node = this.shown()[Math.floor((y - HEAD) / ROW)];
    const slot = this.first + Math.floor((x - NAMES) / CELL);
    if (!node || x < NAMES || slot >= this.first + this.columns) return null;
    const vote = this.model.vote(node, slot, cursor.row);
    const applied = slot <= (this.model.state(node, "applied", cursor.row) || 0);
    const chosen = slot <= (this.model.state(node, "chosen", cursor.row) || 0);
    const state = applied ? "applied" : chosen ? "chosen" : vote ? "accepted" : "empty";
    const value = vote ? `${vote.text}${vote.ballot === "learned" ? ", reported as chosen" : `, ballot ${vote.ballot}`}` : applied ? "from a snapshot, or before this recording" : "";
    return { node, slot, state, value, row: vote ? vote.row : -1 };
  }
}
