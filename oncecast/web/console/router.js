// Show the page that the address names: #/topics/NAME?tab=settings.

export class Router {
  #routes = [];
  #show;

  /** `show(page, parameters, query)` shows a page; `page` is null if no route matches. */
  constructor(show) {
    this.#show = show;
    addEventListener("hashchange", () => this.go());
  }

  add(pattern, page) {
    this.#routes.push({ parts: pattern.split("/").slice(1), page });
    return this;
  }

  go() {
    const [where, query = ""] = location.hash.replace(/^#/, "").split("?");
    const parts = (where || "/").split("/").slice(1);
    for (const route of this.#routes) {
      const found = match(route.parts, parts);
      if (found) return this.#show(route.page, found, new URLSearchParams(query));
    }
    return this.#show(null, {}, new URLSearchParams(query));
  }
}

function match(pattern, parts) {
  if (pattern.length !== parts.length) return null;
  const found = {};
  for (const [at, part] of pattern.entries()) {
    const actual = decoded(parts[at]);
    if (actual === null) return null;
    if (part.startsWith(":")) found[part.slice(1)] = actual;
    else if (part !== actual) return null;
  }
  return found;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

/** Return the address of a page. */
export function link(parts, query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${asked ? `?${asked}` : ""}`;
}

export const topicLink = (topic, query) => link(["topics", topic], query);
export const subscriptionLink = (topic, name) => link(["topics", topic, "subscriptions", name]);

/** Change the query of the current address without a new page. */
export function rewrite(query) {
  const [where] = location.hash.split("?");
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  history.replaceState(null, "", `${where || "#/"}${asked ? `?${asked}` : ""}`);
}
