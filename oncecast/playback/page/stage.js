// Draws the nodes, the messages between them, and the faults.

import { FONT, MONO, fitted, palette, typeColor } from "playback/palette.js";

const RING_BITS = 2 ** 32;
const LABELS_MAX = 26; // more messages in flight get no label
const LARGE = 40; // more nodes are drawn as dots
const MARGIN = { x: 56, top: 30, bottom: 62 };
const COLUMN = 6; // number of clients in a column beside the replicas

export class Stage {
  constructor(canvas, model, view) {
    this.canvas = canvas;
    this.model = model;
    this.view = view;
    this.ranks = ranked(model);
    this.isRing = model.hasKey("position");
    this.places = new Map();
    this.moving = [];
    this.arrange();
  }

  /** Choose a seat for each node: on the ring, on an ellipse, or in a column of clients. */
  arrange() {
    const { model } = this;
    this.seats = new Map();
    const main = [];
    const other = [];
    const bases = new Map(); // incarnations of a client, such as ann#1 and ann#2, share a seat
    for (let node = 1; node < model.nodes.length; node++) {
      const base = model.nodes[node].split("#")[0];
      if (bases.has(base)) {
        bases.get(base).push(node);
        continue;
      }
      bases.set(base, [node]);
      const place = this.isRing ? model.history(node, "position") : [];
      if (place.length) {
        this.seats.set(node, { angle: (place[0][1] / RING_BITS) * 2 * Math.PI - Math.PI / 2, radius: 1 });
      } else if (this.isRing || (model.hasKey("role") && !model.history(node, "role").length)) other.push(node);
      else main.push(node);
    }
    for (const nodes of [main, other]) nodes.sort((one, two) => compared(model.nodes[one], model.nodes[two]));
    main.forEach((node, at) => this.seats.set(node, { angle: (at / main.length) * 2 * Math.PI - Math.PI / 2, radius: 1 }));
    this.columns = this.isRing ? 0 : Math.min(2, Math.ceil(other.length / COLUMN));
    other.forEach((node, at) => this.seats.set(node, this.isRing
      ? { angle: (at / other.length) * 2 * Math.PI - Math.PI / 2, radius: 0.5 }
      : { column: at % this.columns, part: (Math.floor(at / this.columns) + 0.5) / Math.ceil(other.length / this.columns), angle: Math.PI / 2 }));
    for (const twins of bases.values()) {
      for (const twin of twins.slice(1)) this.seats.set(twin, this.seats.get(twins[0]));
    }
    this.main = new Set([...this.seats].filter(([, seat]) => seat.column === undefined && seat.radius === 1).map(([node]) => node));
    this.small = bases.size > LARGE || (this.isRing && bases.size > 24);
    this.dense = bases.size > 150;
  }

  place(node) {
    return this.places.get(node);
  }

  draw(cursor) {
    const { context: c, width, height } = fitted(this.canvas);
    const p = palette();
    c.clearRect(0, 0, width, height);
    const ring = this.putNodes(width, height);
    this.now = this.snapshot(cursor);
    if (this.isRing) this.drawRing(c, p, cursor, ring);
    this.drawLinks(c, p, cursor);
    this.drawTree(c, p, cursor);
    this.drawFaults(c, p, cursor);
    this.drawStep(c, p, cursor);
    this.drawMessages(c, p, cursor);
    this.drawNodes(c, p, cursor);
  }

  /** Compute where the nodes are on the canvas. Return the ring's centre and radius. */
  putNodes(width, height) {
    const aside = this.columns * Math.min(110, width * 0.17);
    const top = this.small ? 34 : MARGIN.top;
    const bottom = this.small ? 34 : MARGIN.bottom;
    const centre = { x: aside + (width - aside) / 2, y: top + (height - top - bottom) / 2 };
    const reach = { x: Math.min((width - aside) / 2 - MARGIN.x, height * 1.1), y: (height - top - bottom) / 2 };
    if (this.isRing) reach.x = reach.y = Math.min(reach.x, reach.y);
    for (const [node, seat] of this.seats) {
      this.places.set(node, seat.column === undefined
        ? { x: centre.x + Math.cos(seat.angle) * seat.radius * reach.x, y: centre.y + Math.sin(seat.angle) * seat.radius * reach.y }
        : { x: 44 + seat.column * (aside / this.columns), y: 14 + seat.part * (height - 40) });
    }
    return { ...centre, radius: reach.x };
  }

  /** Return the state of each node that the drawing needs. */
  snapshot(cursor) {
    const found = new Map();
    for (const node of this.seats.keys()) {
      const up = this.model.state(node, "up", cursor.row);
      if (up === undefined) continue; // not started yet
      found.set(node, up ? { up, paused: this.model.state(node, "paused", cursor.row) === 1 } : { up });
    }
    return found;
  }

  drawRing(c, p, cursor, ring) {
    c.strokeStyle = p.line;
    c.lineWidth = 1;
    c.beginPath();
    c.arc(ring.x, ring.y, ring.radius, 0, 2 * Math.PI);
    c.stroke();
    c.strokeStyle = p.accent;
    c.globalAlpha = this.dense ? 0.55 : 0.7;
    c.lineWidth = this.dense ? 1 : 1.5;
    c.beginPath();
    for (const [node, { up }] of this.now) {
      if (!up) continue;
      const next = this.numberOf(this.model.state(node, "successor", cursor.row));
      if (next && next !== node) this.line(c, node, next);
    }
    c.stroke();
    c.globalAlpha = 1;
  }

  numberOf(name) {
    if (!name) return 0;
    this.numbers ||= new Map(this.model.nodes.map((each, number) => [each, number]));
    return this.numbers.get(name) || 0;
  }

  line(c, from, to) {
    const a = this.places.get(from);
    const b = this.places.get(to);
    if (!a || !b) return;
    c.moveTo(a.x, a.y);
    c.lineTo(b.x, b.y);
  }

  drawLinks(c, p, cursor) {
    for (const [key, color, width] of [["active", p.line, 1], ["eager", p.accent, 1.4]]) {
      if (!this.model.hasKey(key)) continue;
      c.strokeStyle = color;
      c.lineWidth = width;
      c.globalAlpha = this.dense ? 0.25 : 0.6;
      c.beginPath();
      for (const [node, { up }] of this.now) {
        if (!up) continue;
        for (const peer of (this.model.state(node, key, cursor.row) || "").split(" ")) {
          const other = this.numberOf(peer);
          if (other) this.line(c, node, other);
        }
      }
      c.stroke();
      c.globalAlpha = 1;
    }
  }

  /** Draw the edges of the chosen multicast tree, from children to parents. */
  drawTree(c, p, cursor) {
    const { tree } = this.view;
    if (!tree) return;
    c.strokeStyle = p.success;
    c.lineWidth = 2;
    c.beginPath();
    const roots = [];
    const joined = [];
    for (const [node, { up }] of this.now) {
      const state = up ? this.model.state(node, `tree ${tree}`, cursor.row) : "";
      if (!state) continue;
      if (state[0] === "+") joined.push(node);
      if (state[1] === "*") roots.push(node);
      else if (state.length > 1) this.line(c, node, this.numberOf(state.slice(1)));
    }
    c.stroke();
    for (const [nodes, radius, fill] of [[joined, 9, false], [roots, 12, true]]) {
      for (const node of nodes) {
        const { x, y } = this.places.get(node);
        c.beginPath();
        c.arc(x, y, (this.small ? 0 : 12) + radius, 0, 2 * Math.PI);
        c.fillStyle = p.success;
        if (fill) {
          c.globalAlpha = 0.25;
          c.fill();
          c.globalAlpha = 1;
        }
        c.stroke();
      }
    }
  }

  drawFaults(c, p, cursor) {
    const faults = this.model.faultsAt(cursor.time).filter((each) => each.senders.length || each.receivers.length);
    if (!faults.length) return;
    const up = [...this.now].filter(([, state]) => state.up).map(([node]) => node);
    const blocked = new Map(); // the kind of the fault, by sender and receiver
    for (const fault of faults) {
      const senders = new Set(fault.senders.length ? fault.senders : up.filter((each) => !fault.receivers.includes(each)));
      const receivers = new Set(fault.receivers.length ? fault.receivers : up.filter((each) => !fault.senders.includes(each)));
      for (const from of up) {
        for (const to of up) {
          const cut = (senders.has(from) && receivers.has(to)) || (fault.both && senders.has(to) && receivers.has(from));
          if (cut && from !== to) blocked.set(`${from} ${to}`, fault.kind);
        }
      }
    }
    const silent = new Map(); // number of nodes that a node cannot send to
    const deaf = new Map(); // and that it cannot hear
    for (const [pair, kind] of blocked) {
      const [from, to] = pair.split(" ").map(Number);
      silent.set(from, (silent.get(from) || 0) + 1);
      deaf.set(to, (deaf.get(to) || 0) + 1);
      const twin = blocked.has(`${to} ${from}`);
      if (!this.small && (!twin || from < to)) this.drawCut(c, this.faultColor(p, kind), from, to, twin);
    }
    c.setLineDash([4, 4]);
    c.lineWidth = 1.5;
    c.strokeStyle = this.faultColor(p, faults[0].kind);
    for (const node of up) {
      if (Math.max(silent.get(node) || 0, deaf.get(node) || 0) < up.length - 1) continue;
      const { x, y } = this.places.get(node);
      c.beginPath();
      c.arc(x, y, this.small ? 8 : this.main.has(node) ? 27 : 13, 0, 2 * Math.PI);
      c.stroke();
    }
    c.setLineDash([]);
  }

  faultColor(p, kind) {
    return kind === "partition" ? p.danger : kind === "hold" ? p.hold : p.warning;
  }

  /** Mark a blocked link between replicas; the bar is near the sender if one direction works. */
  drawCut(c, color, from, to, both) {
    if (!this.main.has(from) || !this.main.has(to)) return;
    const a = this.places.get(from);
    const b = this.places.get(to);
    c.strokeStyle = color;
    c.lineWidth = 1;
    c.globalAlpha = 0.3;
    c.setLineDash([3, 5]);
    c.beginPath();
    c.moveTo(a.x, a.y);
    c.lineTo(b.x, b.y);
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 0.85;
    const part = both ? 0.5 : 0.3;
    bar(c, a.x + (b.x - a.x) * part, a.y + (b.y - a.y) * part, Math.atan2(b.y - a.y, b.x - a.x));
    c.globalAlpha = 1;
  }

  /** Show the path of the message that the current step handles. */
  drawStep(c, p, cursor) {
    const rows = this.view.focus.length ? this.view.focus : cursor.row >= 0 ? [cursor.row] : [];
    for (const row of rows) {
      const step = this.model.step(row);
      if (step.message < 0) continue;
      const { sender, to } = this.model.message(step.message);
      const a = this.places.get(sender);
      const b = this.places.get(to);
      if (!a || !b || a === b) continue;
      const focused = this.view.focus.length > 0;
      c.strokeStyle = focused ? p.danger : p.accent;
      c.fillStyle = c.strokeStyle;
      c.globalAlpha = focused ? 0.8 : 0.5;
      c.lineWidth = focused ? 2.5 : 2;
      arrow(c, a, b, this.small ? 6 : 26);
      c.globalAlpha = 1;
    }
  }

  drawMessages(c, p, cursor) {
    const { model, view } = this;
    const names = model.columns["messages.name"];
    const sender = model.columns["messages.sender"];
    const to = model.columns["messages.to"];
    this.moving = [];
    model.eachInFlight(cursor.time, (index, part, alpha) => {
      if (view.hidden.has(names[index])) return;
      const a = this.places.get(sender[index]);
      const b = this.places.get(to[index]);
      if (!a || !b) return;
      if (view.node && sender[index] !== view.node && to[index] !== view.node) alpha *= 0.15;
      const x = a.x + (b.x - a.x) * part;
      const y = a.y + (b.y - a.y) * part;
      this.moving.push({ index, x, y, a, b, alpha, lost: model.until[index] && model.columns["messages.took"][index] < 0 });
    });
    const size = this.dense ? 2.2 : this.small ? 3 : 4.5;
    const labelled = this.moving.length <= LABELS_MAX && !this.small;
    c.font = `500 10.5px ${FONT}`;
    c.textAlign = "left";
    c.textBaseline = "middle";
    for (const each of this.moving) {
      const color = typeColor(this.ranks.get(names[each.index]) ?? 99);
      c.globalAlpha = each.alpha;
      c.strokeStyle = color;
      c.fillStyle = color;
      const length = Math.hypot(each.b.x - each.a.x, each.b.y - each.a.y) || 1;
      const tail = Math.min(this.dense ? 8 : 22, length * 0.2);
      c.lineWidth = size * 0.7;
      c.beginPath();
      c.moveTo(each.x, each.y);
      c.lineTo(each.x - ((each.b.x - each.a.x) / length) * tail, each.y - ((each.b.y - each.a.y) / length) * tail);
      c.globalAlpha = each.alpha * 0.4;
      c.stroke();
      c.globalAlpha = each.alpha;
      if (each.lost) cross(c, each.x, each.y, size);
      else {
        c.beginPath();
        c.arc(each.x, each.y, size, 0, 2 * Math.PI);
        c.fill();
      }
      if (labelled && Math.hypot(each.b.x - each.x, each.b.y - each.y) > 46) {
        const text = model.header.words[names[each.index]];
        c.lineWidth = 3;
        c.strokeStyle = p.surface;
        c.fillStyle = p.text;
        c.strokeText(text, each.x + size + 4, each.y);
        c.fillText(text, each.x + size + 4, each.y);
      }
    }
    c.globalAlpha = 1;
  }

  drawNodes(c, p, cursor) {
    const acting = cursor.row >= 0 ? this.model.columns["steps.node"][cursor.row] : 0;
    if (this.small) this.drawDots(c, p, cursor, acting);
    else for (const [node, state] of this.now) this.drawNode(c, p, cursor, node, state, node === acting);
  }

  drawDots(c, p, cursor, acting) {
    const radius = this.dense ? 2.6 : 5;
    for (const [up, color] of [[1, this.dense ? p.muted : p.text], [0, p.danger]]) {
      c.fillStyle = color;
      c.strokeStyle = color;
      c.lineWidth = 1.2;
      c.beginPath();
      for (const [node, state] of this.now) {
        if (Boolean(state.up) !== Boolean(up)) continue;
        const { x, y } = this.places.get(node);
        if (up) {
          c.moveTo(x + radius, y);
          c.arc(x, y, radius, 0, 2 * Math.PI);
        } else {
          c.moveTo(x - radius, y - radius);
          c.lineTo(x + radius, y + radius);
          c.moveTo(x - radius, y + radius);
          c.lineTo(x + radius, y - radius);
        }
      }
      if (up) c.fill();
      else c.stroke();
    }
    const named = new Set([acting, this.view.node, this.view.hovered].filter(Boolean));
    if (!this.dense) for (const node of this.now.keys()) named.add(node);
    c.font = `500 11px ${FONT}`;
    c.textBaseline = "middle";
    for (const node of named) {
      const place = this.now.has(node) && this.places.get(node);
      if (!place) continue;
      const seat = this.seats.get(node);
      const marked = node === acting || node === this.view.node || node === this.view.hovered;
      if (marked) {
        c.strokeStyle = node === acting ? p.accent : p.text;
        c.lineWidth = 2;
        c.beginPath();
        c.arc(place.x, place.y, radius + 4, 0, 2 * Math.PI);
        c.stroke();
      }
      c.textAlign = Math.cos(seat.angle) > 0.3 ? "left" : Math.cos(seat.angle) < -0.3 ? "right" : "center";
      const x = place.x + Math.cos(seat.angle) * (radius + 9);
      const y = place.y + Math.sin(seat.angle) * (radius + 13);
      c.lineWidth = 3;
      c.strokeStyle = p.surface;
      c.fillStyle = marked ? p.text : p.muted;
      c.strokeText(this.model.nodes[node], x, y);
      c.fillText(this.model.nodes[node], x, y);
    }
  }

  drawNode(c, p, cursor, node, state, acting) {
    const { model } = this;
    const { x, y } = this.places.get(node);
    const role = state.up ? model.state(node, "role", cursor.row) : "";
    const main = this.main.has(node);
    const radius = 20;
    if (!main) {
      if (state.up) this.drawClient(c, p, node, x, y, acting);
      return;
    }
    c.globalAlpha = this.view.node && this.view.node !== node ? 0.75 : 1;
    if (acting) {
      c.fillStyle = p.accent;
      c.globalAlpha = 0.16;
      c.beginPath();
      c.arc(x, y, radius + 9, 0, 2 * Math.PI);
      c.fill();
      c.globalAlpha = 1;
    }
    c.beginPath();
    c.arc(x, y, radius, 0, 2 * Math.PI);
    c.fillStyle = !state.up ? p.ground : role === "leader" ? p.accent : p.raised;
    c.fill();
    c.lineWidth = this.view.node === node ? 3 : 1.75;
    c.strokeStyle = !state.up ? p.danger : role === "leader" || role === "candidate" ? p.accent : role === "spare" ? p.line : p.muted;
    c.setLineDash(!state.up || role === "candidate" ? [4, 3] : []);
    c.stroke();
    c.setLineDash([]);
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.font = `600 12.5px ${FONT}`;
    c.fillStyle = !state.up ? p.danger : role === "leader" ? p["accent-ink"] : p.text;
    c.fillText(shortened(c, model.nodes[node].split("#")[0], radius * 1.8), x, y + 0.5);
    if (state.paused) pauseMark(c, p, x + radius * 0.75, y - radius * 0.75);
    c.globalAlpha = 1;
    this.drawCaption(c, p, cursor, node, state, role, x, y + radius);
  }

  /** Draw a client as a small square with its name. */
  drawClient(c, p, node, x, y, acting) {
    c.fillStyle = acting ? p["accent-soft"] : p.raised;
    c.strokeStyle = acting || this.view.node === node ? p.accent : p.muted;
    c.lineWidth = 1.5;
    c.beginPath();
    c.roundRect(x - 7, y - 7, 14, 14, 4);
    c.fill();
    c.stroke();
    c.font = `500 10.5px ${FONT}`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillStyle = acting ? p.text : p.muted;
    c.fillText(shortened(c, shortName(this.model.nodes[node]), 86), x, y + 16);
  }

  drawCaption(c, p, cursor, node, state, role, x, y) {
    const { model } = this;
    const lines = [];
    if (!state.up) lines.push(["down", p.danger]);
    else {
      if (state.paused) lines.push(["paused", p.warning]);
      if (role && role !== "follower") lines.push([role, role === "leader" ? p.accent : p.muted]);
      const ballot = model.state(node, "ballot", cursor.row);
      const applied = model.state(node, "applied", cursor.row);
      if (ballot) lines.push([`${ballot}${applied > 0 ? `  ·  slot ${applied}` : ""}`, p.muted]);
      else if (!role && model.state(node, "leader", cursor.row)) lines.push([`leader ${model.state(node, "leader", cursor.row)}`, p.muted]);
    }
    lines.forEach(([text, color], at) => {
      const top = y + 12 + at * 13;
      c.font = `500 10.5px ${at === lines.length - 1 && text.includes("·") ? MONO : FONT}`;
      c.lineWidth = 3;
      c.strokeStyle = p.surface;
      c.strokeText(text, x, top);
      c.fillStyle = color;
      c.fillText(text, x, top);
    });
  }

  /** Return what is at a point of the canvas: a node, a message, or null. */
  hit(x, y) {
    let best = null;
    let nearest = 14;
    for (const each of this.moving) {
      const distance = Math.hypot(each.x - x, each.y - y);
      if (distance < nearest && distance < 10) [best, nearest] = [{ message: each.index }, distance];
    }
    if (best) return best;
    nearest = this.small ? 12 : 24;
    for (const node of this.now?.keys() || []) {
      const place = this.places.get(node);
      const distance = Math.hypot(place.x - x, place.y - y);
      if (distance < nearest) [best, nearest] = [{ node }, distance];
    }
    return best;
  }
}

/** Return the rank of each message type: 0 for the most frequent one. */
export function ranked(model) {
  const counts = new Map();
  for (const name of model.columns["messages.name"]) counts.set(name, (counts.get(name) || 0) + 1);
  const sorted = [...counts].sort((one, other) => other[1] - one[1] || one[0] - other[0]);
  return new Map(sorted.map(([name], rank) => [name, rank]));
}

/** Return the last part of a name: reader for client/reader#2. */
export function shortName(name) {
  return name.split("#")[0].split("/").pop();
}

/** Compare names so that n2 comes before n10. */
export function compared(one, other) {
  return one.localeCompare(other, "en", { numeric: true });
}

function shortened(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 2 && c.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}

function bar(c, x, y, angle) {
  c.lineWidth = 2.5;
  c.beginPath();
  c.moveTo(x - Math.sin(angle) * 6, y + Math.cos(angle) * 6);
  c.lineTo(x + Math.sin(angle) * 6, y - Math.cos(angle) * 6);
  c.stroke();
}

function cross(c, x, y, size) {
  c.lineWidth = 2;
  c.beginPath();
  c.moveTo(x - size, y - size);
  c.lineTo(x + size, y + size);
  c.moveTo(x - size, y + size);
  c.lineTo(x + size, y - size);
  c.stroke();
}

function arrow(c, a, b, gap) {
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const dx = (b.x - a.x) / length;
  const dy = (b.y - a.y) / length;
  const end = { x: b.x - dx * gap, y: b.y - dy * gap };
  c.beginPath();
  c.moveTo(a.x + dx * gap, a.y + dy * gap);
  c.lineTo(end.x, end.y);
  c.stroke();
  c.beginPath();
  c.moveTo(end.x + dx * 4, end.y + dy * 4);
  c.lineTo(end.x - dx * 6 - dy * 5, end.y - dy * 6 + dx * 5);
  c.lineTo(end.x - dx * 6 + dy * 5, end.y - dy * 6 - dx * 5);
  c.fill();
}

function pauseMark(c, p, x, y) {
  c.beginPath();
  c.arc(x, y, 8, 0, 2 * Math.PI);
  c.fillStyle = p.warning;
  c.fill();
  c.fillStyle = p.surface;
  c.fillRect(x - 3, y - 3.5, 2.2, 7);
  c.fillRect(x + 0.8, y - 3.5, 2.2, 7);
}
