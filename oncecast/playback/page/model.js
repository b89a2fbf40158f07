// Answers questions about a recording: the state of a node, the messages in flight, and so on.
// A row is the number of a step, counted from 0. A cursor is a time and the last row at that time.

const BUCKETS = 4096;
const NONE = -1;

export class Model {
  constructor({ header, columns }) {
    this.header = header;
    this.columns = columns;
    this.end = Math.max(header.end, 1);
    this.nodes = header.nodes;
    this.times = columns["steps.time"];
    this.rows = this.times.length;
    this.messages = columns["messages.left"].length;
    this.effectStarts = sums(columns["steps.effects"]);
    this.indexStates();
    this.indexVotes();
    this.indexMessages();
    this.indexSends();
  }

  // -- steps --

  /** Return the last row at or before a time, or -1. */
  rowAt(time) {
    return lastAtOrBefore(this.times, time);
  }

  step(row) {
    const { columns: c, header: h } = this;
    const back = c["steps.back"][row];
    const message = c["steps.message"][row];
    return {
      row,
      time: c["steps.time"][row],
      node: c["steps.node"][row],
      kind: h.words[c["steps.kind"][row]],
      name: h.words[c["steps.name"][row]],
      text: message === NONE ? h.strings[c["steps.text"][row]] : this.messageText(message),
      message,
      cause: back ? row - back : NONE,
    };
  }

  effects(row) {
    const from = this.effectStarts[row];
    const to = this.effectStarts[row + 1];
    const texts = [];
    for (let at = from; at < to; at++) {
      texts.push(this.header.strings[this.columns["effects.text"][at]]);
    }
    return texts;
  }

  /** Return the messages that a step sent. */
  sends(row) {
    return this.sentBy.get(row) || [];
  }

  /** Return the rows from an outside input to `row`. */
  chain(row) {
    const found = [row];
    while (found.length < 200) {
      const step = this.step(found[found.length - 1]);
      if (step.cause === NONE || !["receive", "synced", "down", "start", "return"].includes(step.kind)) break;
      found.push(step.cause);
    }
    return found.reverse();
  }

  // -- messages --

  message(index) {
    const { columns: c, header: h } = this;
    return {
      index,
      name: h.words[c["messages.name"][index]],
      sender: c["messages.sender"][index],
      to: c["messages.to"][index],
      text: h.strings[c["messages.text"][index]],
      sent: c["messages.sent"][index],
      left: c["messages.left"][index],
      took: c["messages.took"][index],
      got: c["messages.got"][index],
      fate: h.fates[c["messages.fate"][index]],
    };
  }

  messageText(index) {
    return this.header.strings[this.columns["messages.text"][index]];
  }

  indexSends() {
    const sent = this.columns["messages.sent"];
    this.sentBy = new Map();
    for (let index = 0; index < sent.length; index++) {
      if (sent[index] === NONE) continue;
      const list = this.sentBy.get(sent[index]);
      if (list) list.push(index);
      else this.sentBy.set(sent[index], [index]);
    }
  }

  /** Sort the messages into buckets of time, so that a frame looks at few of them. */
  indexMessages() {
    const left = this.columns["messages.left"];
    const took = this.columns["messages.took"];
    const sample = Array.from(took.filter((each) => each > 0).slice(0, 5000)).sort((a, b) => a - b);
    // A lost message is shown for as long as a typical message takes.
    this.lossTime = sample.length ? sample[sample.length >> 1] : this.end / 100;
    this.until = new Float64Array(left.length);
    this.bucketWidth = this.end / BUCKETS;
    const spans = [];
    const counts = new Uint32Array(BUCKETS + 1);
    for (let index = 0; index < left.length; index++) {
      if (left[index] < 0) continue;
      this.until[index] = left[index] + (took[index] < 0 ? this.lossTime : took[index]);
      if (this.until[index] <= left[index]) continue; // a message of a node to itself
      const first = this.bucket(left[index]);
      const last = this.bucket(this.until[index]);
      spans.push(index, first, last);
      for (let at = first; at <= last; at++) counts[at]++;
    }
    this.bucketStarts = sums(counts);
    this.bucketItems = new Uint32Array(this.bucketStarts[BUCKETS]);
    const next = Uint32Array.from(this.bucketStarts);
    for (let at = 0; at < spans.length; at += 3) {
      for (let bucket = spans[at + 1]; bucket <= spans[at + 2]; bucket++) {
        this.bucketItems[next[bucket]++] = spans[at];
      }
    }
  }

  bucket(time) {
    return Math.max(0, Math.min(BUCKETS - 1, Math.floor(time / this.bucketWidth)));
  }

  /** Call `visit` with each message between two nodes at this time, and how far it has come. */
  eachInFlight(time, visit) {
    const left = this.columns["messages.left"];
    const took = this.columns["messages.took"];
    const bucket = this.bucket(time);
    for (let at = this.bucketStarts[bucket]; at < this.bucketStarts[bucket + 1]; at++) {
      const index = this.bucketItems[at];
      if (left[index] <= time && time < this.until[index]) {
        const lost = took[index] < 0;
        const part = (time - left[index]) / (this.until[index] - left[index]);
        visit(index, lost ? 0.1 + part * 0.4 : part, lost ? 1 - part : 1);
      }
    }
  }

  // -- the state of nodes --

  indexStates() {
    const { columns: c, header: h } = this;
    this.keyNumbers = new Map(h.keys.map((each, number) => [each.key, number]));
    this.series = groups(c["changes.step"].length, (at) => c["changes.node"][at] * h.keys.length + c["changes.key"][at]);
    for (const [key, picked] of this.series) {
      this.series.set(key, {
        rows: Float64Array.from(picked, (at) => c["changes.step"][at]),
        values: Float64Array.from(picked, (at) => c["changes.value"][at]),
      });
    }
  }

  hasKey(key) {
    return this.keyNumbers.has(key);
  }

  /** Return a node's state after `row`: a number, a string, or undefined. */
  state(node, key, row) {
    const number = this.keyNumbers.get(key);
    if (number === undefined) return undefined;
    const series = this.series.get(node * this.header.keys.length + number);
    if (series === undefined) return undefined;
    const at = lastAtOrBefore(series.rows, row);
    if (at < 0) return undefined;
    const value = series.values[at];
    return this.header.keys[number].text ? this.header.strings[value] : value;
  }

  /** Return the changes of one state: an array of [row, value]. */
  history(node, key) {
    const number = this.keyNumbers.get(key);
    const series = this.series.get(node * this.header.keys.length + number);
    if (series === undefined) return [];
    const text = this.header.keys[number].text;
    return Array.from(series.rows, (row, at) => [
      row,
      text ? this.header.strings[series.values[at]] : series.values[at],
    ]);
  }

  /** Return all states of a node after `row`. */
  states(node, row) {
    const found = [];
    for (const { key } of this.header.keys) {
      const value = this.state(node, key, row);
      if (value !== undefined && value !== "" && !(value === -1)) found.push([key, value]);
    }
    return found;
  }

  topics() {
    return this.header.keys.map((each) => each.key).filter((key) => key.startsWith("tree ")).map((key) => key.slice(5)).sort();
  }

  // -- the logs of replicas --

  indexVotes() {
    const { columns: c } = this;
    const count = c["votes.step"].length;
    this.cells = new Map();
    this.valueTexts = new Map();
    this.highestVote = { rows: [], slots: [] };
    let highest = 0;
    for (let at = 0; at < count; at++) {
      const key = c["votes.node"][at] * 2 ** 40 + c["votes.slot"][at];
      const list = this.cells.get(key);
      if (list) list.push(at);
      else this.cells.set(key, [at]);
      const text = this.header.strings[c["votes.text"][at]];
      if (text) this.valueTexts.set(c["votes.checksum"][at], text);
      if (c["votes.slot"][at] > highest) {
        highest = c["votes.slot"][at];
        this.highestVote.rows.push(c["votes.step"][at]);
        this.highestVote.slots.push(highest);
      }
    }
    this.lastSlot = highest;
  }

  /** Return the vote of a replica for a slot after `row`, or null. */
  vote(node, slot, row) {
    const list = this.cells.get(node * 2 ** 40 + slot);
    if (!list) return null;
    const { columns: c } = this;
    let found = NONE;
    for (const at of list) {
      if (c["votes.step"][at] > row) break;
      found = at;
    }
    if (found === NONE) return null;
    const ballot = this.header.words[c["votes.ballot"][found]];
    if (!ballot) return null;
    const checksum = c["votes.checksum"][found];
    return { ballot, checksum, text: this.valueTexts.get(checksum) || "", row: c["votes.step"][found] };
  }

  highestSlot(row) {
    const at = lastAtOrBefore(this.highestVote.rows, row);
    return at < 0 ? 0 : this.highestVote.slots[at];
  }

  // -- faults --

  faultsAt(time) {
    return this.header.faults.filter((each) => each.begin <= time && (each.end < 0 || time < each.end));
  }

  /** Return the spans of time in which a state of a node has the value `wanted`. */
  spans(node, key, wanted) {
    const found = [];
    let begin = null;
    for (const [row, value] of this.history(node, key)) {
      const time = this.times[row];
      if (value === wanted && begin === null) begin = time;
      if (value !== wanted && begin !== null) {
        found.push([begin, time]);
        begin = null;
      }
    }
    if (begin !== null) found.push([begin, this.end]);
    return found;
  }

  // -- search --

  /** Return the rows that contain all words of the query. `node:`, `type:` and `is:` are exact. */
  search(query) {
    const tests = query.trim().split(/\s+/).filter(Boolean).map((word) => this.test(word));
    if (!tests.length) return [];
    const found = [];
    for (let row = 0; row < this.rows; row++) {
      if (tests.every((test) => test(row))) found.push(row);
    }
    return found;
  }

  test(word) {
    const { columns: c, header: h } = this;
    const [, field, wanted] = word.match(/^(node|type|is):(.+)$/i) || [];
    if (field) {
      const list = field === "node" ? h.nodes : h.words;
      const numbers = new Set(list.flatMap((each, number) => (each.toLowerCase() === wanted.toLowerCase() ? [number] : [])));
      const column = c[{ node: "steps.node", type: "steps.name", is: "steps.kind" }[field.toLowerCase()]];
      return (row) => numbers.has(column[row]);
    }
    const part = word.toLowerCase();
    const has = (list) => Uint8Array.from(list, (each) => (each.toLowerCase().includes(part) ? 1 : 0));
    const nodes = has(h.nodes);
    const words = has(h.words);
    const strings = has(h.strings);
    return (row) => {
      if (nodes[c["steps.node"][row]] || words[c["steps.kind"][row]] || words[c["steps.name"][row]]) return true;
      if (strings[c["steps.text"][row]]) return true;
      const message = c["steps.message"][row];
      if (message !== NONE && strings[c["messages.text"][message]]) return true;
      for (let at = this.effectStarts[row]; at < this.effectStarts[row + 1]; at++) {
        if (strings[c["effects.text"][at]]) return true;
      }
      return false;
    };
  }
}

function sums(counts) {
  const starts = new Uint32Array(counts.length + 1);
  for (let at = 0; at < counts.length; at++) starts[at + 1] = starts[at] + counts[at];
  return starts;
}

function groups(count, keyOf) {
  const found = new Map();
  for (let at = 0; at < count; at++) {
    const key = keyOf(at);
    const list = found.get(key);
    if (list) list.push(at);
    else found.set(key, [at]);
  }
  return found;
}

/** Return the index of the last element that is not above `wanted`, or -1. */
export function lastAtOrBefore(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Return a time in microseconds as text: seconds with as many digits as the recording needs. */
export function seconds(time, digits = 3) {
  return `${(time / 1e6).toFixed(digits)} s`;
}
