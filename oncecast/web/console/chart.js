// Draw time series as SVG. Colours come from CSS, so a chart follows the theme.

import { h, put, svg } from "./dom.js";
import { DASH, clock } from "./format.js";

const WINDOW_MIN = 60; // seconds that a chart shows at first
const WINDOW_MAX = 300;
const PAD = { left: 58, right: 12, top: 10, bottom: 22 };

/** Return a chart of one or two series: {element, draw}. `lines` has {name, series, tone}. */
export function chart({ title, lines, format, base = 10, height = 150 }) {
  const canvas = svg("svg", { class: "chart-plot", height, "aria-hidden": "true" });
  const values = lines.map(() => h("b", { class: "num" }, DASH));
  const readout = h("span", { class: "chart-readout num", "aria-hidden": "true" });
  const legend = lines.map((line, at) =>
    h("span", { class: "legend" }, h("i", { class: `legend-mark tone-${line.tone}` }), line.name ? `${line.name} ` : "", values[at]),
  );
  const element = h(
    "figure",
    { class: "chart panel" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), h("span", { class: "legends" }, legend), readout),
    canvas,
  );
  let pointer = null;

  function draw() {
    lines.forEach((line, at) => values[at].replaceChildren(format(line.series.last)));
    const width = canvas.clientWidth;
    if (!width) return;
    canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const plot = layout(lines, width, height, base);
    put(canvas, grid(plot, format), lines.map((line) => shape(line, plot)), cursor(plot));
  }

  function cursor(plot) {
    readout.replaceChildren();
    if (pointer === null) return null;
    const at = plot.from + ((pointer - PAD.left) / plot.width) * plot.seconds;
    const near = lines.map((line) => nearest(line.series.points, at));
    if (!near[0]) return null;
    readout.append(`${clock(near[0][0])}  ${near.map((each) => format(each?.[1])).join(" · ")}`);
    const x = plot.x(near[0][0]);
    return [
      svg("line", { class: "chart-cursor", x1: x, x2: x, y1: PAD.top, y2: height - PAD.bottom }),
      near.map((each, i) => each && svg("circle", { class: `dot tone-${lines[i].tone}`, cx: x, cy: plot.y(each[1]), r: 3.5 })),
    ];
  }

  canvas.addEventListener("pointermove", (event) => {
    pointer = event.offsetX;
    draw();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    draw();
  });
  new ResizeObserver(draw).observe(canvas);
  return { element, draw };
}

function layout(lines, width, height, base) {
  const to = Math.max(...lines.map((line) => line.series.points.at(-1)?.[0] ?? 0), WINDOW_MAX);
  const begin = Math.min(...lines.map((line) => line.series.points[0]?.[0] ?? to));
  const seconds = Math.min(Math.max(to - begin, WINDOW_MIN), WINDOW_MAX);
  const from = to - seconds;
  const inside = lines.flatMap((line) => line.series.points.filter(([at]) => at >= from).map(([, value]) => value));
  const top = nice(Math.max(...inside, 0), base);
  const [wide, high] = [width - PAD.left - PAD.right, height - PAD.top - PAD.bottom];
  return {
    from, to, top, seconds, width: wide, right: width - PAD.right, bottom: height - PAD.bottom,
    x: (at) => PAD.left + ((at - from) / seconds) * wide,
    y: (value) => PAD.top + (1 - value / top) * high,
  };
}

/** Return a round number that is at least `value` and 2. Half of it is round, too. */
function nice(value, base) {
  if (value <= 2) return 2;
  if (base === 2) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((each) => each * power >= value) * power;
}

function grid(plot, format) {
  const rules = [0, 0.5, 1].map((share) => {
    const y = plot.y(plot.top * share);
    return [
      svg("line", { class: share ? "rule" : "rule base", x1: PAD.left, x2: plot.right, y1: y, y2: y }),
      svg("text", { class: "tick", x: PAD.left - 8, y: y + 4, "text-anchor": "end" }, share ? format(plot.top * share) : "0"),
    ];
  });
  const step = plot.seconds > 180 ? 120 : plot.seconds > 90 ? 60 : 30;
  const times = [0, 1, 2].map((each) => each * step).filter((ago) => ago < plot.seconds * 0.9);
  const marks = times.map((ago) =>
    svg(
      "text",
      { class: "tick", x: plot.x(plot.to - ago), y: plot.bottom + 16, "text-anchor": ago ? "middle" : "end" },
      ago ? (ago < 60 ? `−${ago} s` : `−${ago / 60} min`) : "now",
    ),
  );
  return [rules, marks];
}

function shape(line, plot) {
  const points = line.series.points.filter(([at]) => at >= plot.from - 10);
  if (!points.length) return null;
  const tops = points.map(([at, value]) => [Math.max(plot.x(at), PAD.left), plot.y(Math.min(value, plot.top))]);
  const path = tops.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
  const [first, last] = [tops[0][0].toFixed(1), tops.at(-1)[0].toFixed(1)];
  return [
    svg("path", { class: `area tone-${line.tone}`, d: `M${first} ${plot.bottom}L${path}L${last} ${plot.bottom}Z` }),
    svg("path", { class: `line tone-${line.tone}`, d: `M${path}` }),
    tops.length === 1 && svg("circle", { class: `dot tone-${line.tone}`, cx: tops[0][0], cy: tops[0][1], r: 2.5 }),
  ];
}

function nearest(points, at) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
  return best;
}

/** Return a small line without axes, for a table. */
export function spark(points, width = 72, height = 20) {
  const recent = points.slice(-60);
  const top = Math.max(...recent.map(([, value]) => value), 1);
  const [from, to] = [recent[0]?.[0] ?? 0, recent.at(-1)?.[0] ?? 1];
  const place = ([at, value]) => [
    ((at - from) / Math.max(to - from, 1e-9)) * (width - 2) + 1,
    height - 2 - (value / top) * (height - 4),
  ];
  const line = recent.map((point) => place(point).map((each) => each.toFixed(1)).join(" ")).join("L");
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    recent.length > 1 && svg("path", { class: "line tone-lag", d: `M${line}` }),
  );
}
