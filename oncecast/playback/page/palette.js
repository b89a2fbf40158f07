// Colours for the canvases, from the style sheet, so that they follow the theme.

const NAMES = [
  "ground", "surface", "raised", "line", "text", "muted", "faint", "accent", "accent-ink", "accent-soft",
  "danger", "danger-soft", "warning", "success", "hold",
];
const HUES = [212, 28, 158, 282, 340, 186, 52, 250, 98, 8];

let colors = null;

export function palette() {
  if (colors === null) {
    const style = getComputedStyle(document.documentElement);
    colors = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    colors.dark = style.getPropertyValue("--dark").trim() === "1";
  }
  return colors;
}

export function forgetPalette() {
  colors = null;
}

/** Return a colour for the message type with this rank; the tenth and later types share grey. */
export function typeColor(rank) {
  const { dark, muted } = palette();
  if (rank >= HUES.length) return muted;
  return dark ? `hsl(${HUES[rank]} 78% 66%)` : `hsl(${HUES[rank]} 70% 42%)`;
}

/** Return a colour for a value, from its checksum. Equal values have equal colours. */
export function valueColor(checksum) {
  const hue = Math.round((checksum * 137.508) % 360);
  return palette().dark ? `hsl(${hue} 48% 52%)` : `hsl(${hue} 52% 64%)`;
}

/** Return the drawing context of a canvas, sized to its element and to the screen's pixels. */
export function fitted(canvas) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

export const FONT = '"Inter", system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif';
export const MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace';
