// Bounded series of samples, kept in the memory of this tab.

const SAMPLES_MAX = 360; // 12 minutes with a sample every 2 seconds
const SERIES_MAX = 400;

export class Series {
  points = []; // [seconds, value]

  add(at, value) {
    if (typeof value !== "number" || !Number.isFinite(value)) return;
    const last = this.points.at(-1);
    if (last && at <= last[0]) return;
    this.points.push([at, value]);
    if (this.points.length > SAMPLES_MAX) this.points.shift();
  }

  get last() {
    return this.points.at(-1)?.[1];
  }
}

const kept = new Map();

/** Return the series of this name. The least recently used series are forgotten. */
export function series(...name) {
  const key = JSON.stringify(name);
  const found = kept.get(key) ?? new Series();
  kept.delete(key);
  kept.set(key, found);
  if (kept.size > SERIES_MAX) kept.delete(kept.keys().next().value);
  return found;
}
