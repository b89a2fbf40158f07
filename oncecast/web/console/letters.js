// Count the open dead letters of shared subscriptions. The API counts those of one subscription.

import * as api from "./api.js";

const EVERY_MS = 15_000;
const ASKED_MAX = 50; // subscriptions of one list

const known = new Map(); // by path: {at, count}

export const deadPath = ({ topic, name }) => `${api.path("topics", topic, "subscriptions", name)}/dead`;

/** Return the subscriptions with their number of open dead letters, as far as it is known. */
export function withLetters(subscriptions) {
  return subscriptions.map((each) => ({ ...each, letters: each.shared ? known.get(deadPath(each))?.count : undefined }));
}

/** Ask for the counts that are unknown or old, one after the other. */
export async function countLetters(subscriptions, signal) {
  const shared = subscriptions.filter((each) => each.shared).slice(0, ASKED_MAX);
  for (const where of shared.map(deadPath)) {
    if (signal.aborted) return;
    const before = known.get(where);
    if (before && performance.now() - before.at < EVERY_MS) continue;
    try {
      const { count } = await api.get(where, { limit: 1 }, signal);
      known.set(where, { at: performance.now(), count });
    } catch {
      known.set(where, { at: performance.now(), count: undefined });
    }
  }
  while (known.size > 1000) known.delete(known.keys().next().value);
}

/** Forget a count, because the user has just changed it. */
export const forgetLetters = (where) => known.delete(where);
