// Build elements. All text goes through text nodes, so data is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. `props` holds attributes, `on...` listeners, and `class`, `data`, `style`. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
  else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
  else element.setAttribute(name, value === true ? "" : value);
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Set the text of an element only if it differs, so that a selection survives an update. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Make the rows of `parent` show `items`: reuse the row of a known key, keep the order. */
export function keyed(parent, items, keyOf, make, update) {
  const rows = (parent.rowsByKey ??= new Map());
  const seen = new Set();
  let before = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    seen.add(key);
    let row = rows.get(key);
    if (!row) rows.set(key, (row = make(item)));
    update?.(row, item);
    if (row === before) before = before.nextSibling;
    else parent.insertBefore(row, before);
  }
  for (const [key, row] of rows) {
    if (seen.has(key)) continue;
    row.remove();
    rows.delete(key);
  }
}

const ICONS = {
  overview: "M3 12h4l3-7 4 14 3-7h4",
  topics: "M4 6h16M4 12h16M4 18h10",
  subscriptions: "M4 5v9a5 5 0 0 0 5 5h11M16 15l4 4-4 4M4 5h9",
  cluster: "M12 3v6M12 9l-7 8M12 9l7 8M5 17h14",
  tail: "M5 4v16M9 8h10M9 12h7M9 16h10",
  theme: "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z",
  help: "M9 9a3 3 0 1 1 4.2 2.7c-.8.4-1.2 1-1.2 1.8M12 17.5v.1",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 20 20",
  close: "M6 6l12 12M18 6 6 18",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}
