// Read Server-Sent Events with fetch: EventSource cannot report an error body.

import { failure, request } from "./api.js";

const PAUSE_MIN_MS = 500;
const PAUSE_MAX_MS = 10_000;
const SILENT_MS = 60_000; // without even a keep-alive, the connection counts as lost

/** Split a stream of text into events: {id, event, data}. */
export class EventParser {
  #rest = "";
  #event = {};

  *push(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (this.#event.data !== undefined) yield this.#event;
        this.#event = {};
      } else if (!line.startsWith(":")) this.#field(line);
    }
  }

  #field(line) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data" && this.#event.data !== undefined) this.#event.data += `\n${value}`;
    else if (name === "data" || name === "id" || name === "event") this.#event[name] = value;
  }
}

/**
 * Follow an event stream until `signal` aborts. After a lost connection, resume with Last-Event-ID.
 * `onState` gets "connecting", "open", "waiting" or "failed" (with the error: the server refuses).
 */
export async function follow(where, { query, signal, onEvent, onState }) {
  let last = null;
  let pause = PAUSE_MIN_MS;
  while (!signal.aborted) {
    onState("connecting");
    try {
      const headers = { Accept: "text/event-stream" };
      if (last !== null) headers["Last-Event-ID"] = last;
      const response = await request("GET", where, { query, headers, signal });
      if (!response.ok) {
        const error = await failure(response);
        if (response.status < 500) return onState("failed", error);
        throw error;
      }
      onState("open");
      for await (const event of eventsOf(response.body)) {
        pause = PAUSE_MIN_MS;
        if (event.event === "problem") return onState("failed", JSON.parse(event.data));
        if (event.id !== undefined) last = event.id;
        onEvent(event);
      }
    } catch {
      if (signal.aborted) return undefined;
    }
    if (signal.aborted) return undefined;
    onState("waiting");
    await new Promise((wake) => setTimeout(wake, pause * (0.75 + Math.random() / 2)));
    pause = Math.min(pause * 2, PAUSE_MAX_MS);
  }
  return undefined;
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  let timer;
  try {
    for (;;) {
      timer = setTimeout(() => reader.cancel(), SILENT_MS);
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {});
  }
}
