// Call the HTTP interface. A failed call raises ApiError, with the remedy that the API gives.

const BASE = "api/v1";
const TIMEOUT_MS = 20_000;

export class ApiError extends Error {
  constructor({ code, message, remedy, status }) {
    super(message);
    Object.assign(this, { code, remedy, status });
  }
}

const offline = () =>
  new ApiError({
    code: "unreachable",
    message: "the console cannot reach its server",
    remedy: "check that `oncecast web` is running; the console tries again by itself",
    status: 0,
  });

/** Return the path of a resource. Each part is escaped, because names contain any character. */
export function path(...parts) {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

export function request(method, where, { query, body, headers, signal } = {}) {
  const url = new URL(BASE + where, document.baseURI);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  // A page of another site cannot send this header, so it cannot forge a write.
  const sent = { Accept: "application/json", "Oncecast-Request": "1", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  return fetch(url, {
    method,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
  });
}

async function call(method, where, options = {}) {
  const late = AbortSignal.timeout(TIMEOUT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
  let response;
  try {
    response = await request(method, where, { ...options, signal });
    if (response.ok) return response.status === 204 ? null : await response.json();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw offline();
  }
  throw await failure(response);
}

/** Return the error of a response that failed. */
export async function failure(response) {
  const body = await response.json().catch(() => ({}));
  return new ApiError({
    code: body.code ?? "error",
    message: body.message ?? `the server answered with status ${response.status}`,
    remedy: body.remedy ?? "",
    status: response.status,
  });
}

export const get = (where, query, signal) => call("GET", where, { query, signal });
export const post = (where, body = {}, options = {}) => call("POST", where, { body, ...options });
export const put = (where, body = {}) => call("PUT", where, { body });
export const patch = (where, body) => call("PATCH", where, { body });
export const remove = (where) => call("DELETE", where);

// One producer for this tab. Its sequence numbers make a repeated put harmless.
let producer = newProducer();
let sequences = new Map();

function newProducer() {
  return `console-${[...crypto.getRandomValues(new Uint32Array(3))].map((each) => each.toString(36)).join("")}`;
}

/** Put one message exactly once: repeat the same sequence number until the server answers. */
export async function putMessage(topic, message, query) {
  const sequence = sequences.get(topic) ?? 0;
  const headers = { "Oncecast-Producer": producer, "Oncecast-Sequence": String(sequence) };
  for (let attempt = 1; ; attempt += 1) {
    try {
      const done = await post(path("topics", topic, "messages"), { messages: [message] }, { headers, query });
      sequences.set(topic, sequence + 1);
      return done;
    } catch (error) {
      if (error.status && error.status < 500) throw error;
      if (attempt < 3) continue;
      // The outcome is unknown, so this number must never name another message.
      producer = newProducer();
      sequences = new Map();
      throw error;
    }
  }
}
