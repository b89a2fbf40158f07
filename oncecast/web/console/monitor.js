// Watch the node: one request every two seconds serves the status line and all charts of the overview.

import { get } from "./api.js";
import { poll } from "./poll.js";
import { series } from "./series.js";

const EVERY = 2; // seconds

class Monitor extends EventTarget {
  overview = null;
  error = null;
  #last = null;

  start() {
    this.refresh = poll(
      EVERY,
      new AbortController().signal,
      (signal) => get("/overview", {}, signal),
      (data) => this.#take(data),
      (error) => {
        this.error = error;
        this.dispatchEvent(new Event("change"));
      },
    );
  }

  #take(data) {
    this.overview = data;
    this.error = null;
    const now = Date.now() / 1000;
    series("rate", "puts").add(now, data.puts_per_second);
    series("rate", "bytes").add(now, data.bytes_per_second);
    series("messages").add(now, data.messages);
    this.#last = now;
    this.dispatchEvent(new Event("change"));
  }

  /** Return the age of the last answer in seconds, or null if there was none. */
  get age() {
    return this.#last === null ? null : Date.now() / 1000 - this.#last;
  }
}

export const monitor = new Monitor();
