// Checks of a page that a browser test evaluates. The file is one expression: an object of functions.
({
  /** Return the texts whose contrast with their background is too low for WCAG AA. */
  contrast() {
    const parse = (text) => {
      const numbers = text.match(/[\d.]+/g).map(Number);
      const scale = text.startsWith("color(") ? 255 : 1;
      const [r, g, b, a = 1] = numbers;
      return [r * scale, g * scale, b * scale, a];
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((each, at) => each * a + below[at] * (1 - a));
    const light = (colour) => {
      const [r, g, b] = colour.map((each) => {
        const part = each / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
      const layers = [];
      for (let each = element; each; each = each.parentElement) {
        const colour = parse(getComputedStyle(each).backgroundColor);
        layers.push(colour);
        if (colour[3] === 1) break;
      }
      return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.data.trim();
      const element = walker.currentNode.parentElement;
      if (!text || !element.checkVisibility({ visibilityProperty: true })) continue;
      if (element.closest(":disabled, option, .only-read, datalist, title")) continue;
      const style = getComputedStyle(element);
      const below = behind(element);
      const ink = over(parse(element instanceof SVGElement ? style.fill : style.color), below);
      const [high, low] = [light(ink), light(below)].sort((a, b) => b - a);
      const ratio = (high + 0.05) / (low + 0.05);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
    }
    return found;
  },

  /** Return whether the page scrolls horizontally. */
  wider() {
    return document.documentElement.scrollWidth > innerWidth;
  },

  /** Mark the elements that a keyboard must reach, and return their number. */
  targets() {
    document.activeElement.blur();
    scrollTo(0, 0);
    const all = document.querySelectorAll(
      "a[href], button:not(:disabled), input, select, textarea, summary, [tabindex='0']",
    );
    const wanted = [...all].filter((each) => each.checkVisibility({ visibilityProperty: true }));
    window.wanted = new Set(wanted);
    window.unmarked = [];
    return wanted.length;
  },

  /** Note the element that has the focus, and whether it shows that. Return how many are left. */
  reached() {
    const element = document.activeElement;
    const style = getComputedStyle(element);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    if (window.wanted.delete(element) && !ring) window.unmarked.push(element.outerHTML.slice(0, 120));
    return window.wanted.size;
  },

  /** Return the elements that were not reached, or that did not show the focus. */
  left() {
    return [...window.wanted].map((each) => each.outerHTML.slice(0, 120)).concat(window.unmarked);
  },
});
