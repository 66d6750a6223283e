// Draws every device on one canvas: shares stacked in their pods' colours, the measurement as a bar at the right edge,
// health as frame and pattern. Only cells that changed are drawn again.

import { STRIDE, UNKNOWN } from "./columns.js";
import { arrange } from "./arrange.js";

const BETWEEN = "  ·  ";
const ABSENT = 0;
const OUT = 1;
const SUSPECT = 2;

// How wide the bar is that shows the measurement, of a cell of this width.
const bar = (width) => (width >= 12 ? 4 : width >= 7 ? 2 : 1);

export function podColour(tint, isDark) {
  const hue = Math.round((tint * 137.508) % 360);
  const band = tint % 3;
  return `hsl(${hue} ${isDark ? 42 + band * 6 : 46 + band * 7}% ${isDark ? 50 + band * 6 : 48 + band * 7}%)`;
}

export class Board {
  constructor(canvas, onPoint, onPick) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.mode = "compute";
    this.fleet = null;
    this.place = null;
    this.marked = -1;
    addEventListener("theme", () => this.drawAll());
    new ResizeObserver(() => this.fit()).observe(canvas.parentElement);
    canvas.addEventListener("pointermove", (event) => onPoint(this.at(event)));
    canvas.addEventListener("pointerleave", () => onPoint(-1));
    canvas.addEventListener("click", (event) => onPick(this.at(event)));
    canvas.addEventListener("keydown", (event) => this.step(event, onPick));
  }

  get isDark() {
    return document.documentElement.dataset.theme === "dark";
  }

  // Shows these devices of the fleet, and no others.
  show(fleet, cells) {
    this.fleet = fleet;
    this.cells = cells;
    this.width = 0;
    this.fit();
  }

  fit() {
    const style = getComputedStyle(this.canvas.parentElement);
    const width = Math.floor(this.canvas.parentElement.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
    if (!this.fleet || width <= 0 || width === this.width) return;
    this.width = width;
    this.place = arrange(this.fleet, this.cells, width, this.context);
    this.ratio = Math.min(devicePixelRatio || 1, 16000 / this.place.height);
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(this.place.height * this.ratio);
    this.canvas.style.height = `${this.place.height}px`;
    this.drawAll();
  }

  setMode(mode) {
    this.mode = mode;
    this.drawAll();
  }

  mark(cell) {
    const before = this.marked;
    this.marked = cell;
    if (before >= 0) this.drawAll();
    else if (cell >= 0) this.frame(cell);
  }

  drawAll() {
    if (!this.place) return;
    this.theme();
    const { context, place } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, place.height);
    this.titles();
    context.font = `${place.size.label || 10}px system-ui, sans-serif`;
    context.fillStyle = this.colours.quiet;
    for (const label of place.labels) context.fillText(label.text, label.x, label.y);
    this.devices(place.cells);
    if (this.marked >= 0) this.frame(this.marked);
  }

  draw(index) {
    if (!this.place) return;
    const cells = [...index].filter((cell) => this.place.w[cell]);
    this.context.fillStyle = this.colours.surface;
    for (const cell of cells) this.context.fillRect(this.place.x[cell] - 1.5, this.place.y[cell] - 1.5, this.place.w[cell] + 3, this.place.size.height + 3);
    this.devices(cells);
    this.titles();
    if (this.marked >= 0) this.frame(this.marked);
  }

  theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = {};
    for (const name of ["surface", "track", "text", "quiet", "measured", "foreign", "warn", "bad", "accent"]) this.colours[name] = read(name);
    this.pods = Array.from({ length: 256 }, (_, tint) => podColour(tint, this.isDark));
  }

  titles() {
    const { context, place, fleet } = this;
    for (const { group, x, y, width } of place.titles) {
      let booked = 0;
      for (const cell of group.cells) booked += Math.min(fleet[this.mode][cell], 1000);
      const share = Math.round(booked / group.cells.length / 10);
      context.clearRect(x, y, width, 20);
      context.font = "600 13px system-ui, sans-serif";
      context.fillStyle = this.colours.text;
      context.fillText(group.name, x, y + 14);
      const left = x + context.measureText(group.name).width + 8;
      context.font = "12px system-ui, sans-serif";
      context.fillStyle = this.colours.quiet;
      const nodes = group.nodes.length === 1 ? "1 node" : `${group.nodes.length} nodes`;
      const words = [`${share} % booked`, group.generation, nodes, `${group.cells.length} devices`].filter(Boolean);
      while (words.length > 1 && left - x + context.measureText(words.join(BETWEEN)).width > width) words.pop();
      context.fillText(words.join(BETWEEN), left, y + 14);
    }
  }

  // Draws devices layer by layer, each colour once: changing colours costs more than drawing.
  devices(cells) {
    const { context, fleet, place, colours } = this;
    const h = place.size.height;
    context.fillStyle = colours.track;
    for (const cell of cells) context.fillRect(place.x[cell], place.y[cell], place.w[cell], h);
    this.stacks(cells);
    if (this.mode === "memory") for (const cell of cells) this.foreign(cell, place.x[cell], place.y[cell], place.w[cell] - bar(place.w[cell]), h);
    const measured = this.mode === "compute" ? fleet.load : fleet.used;
    context.fillStyle = colours.measured;
    for (const cell of cells) {
      if (measured[cell] === UNKNOWN) continue;
      const height = Math.min(measured[cell], 1000) * h / 1000;
      const wide = bar(place.w[cell]);
      context.fillRect(place.x[cell] + place.w[cell] - wide, place.y[cell] + h - height, wide, height);
    }
    for (const cell of cells) this.state(cell, h);
  }

  state(cell, h) {
    const { place, colours } = this;
    const [x, y, w, state] = [place.x[cell], place.y[cell], place.w[cell], this.fleet.state[cell]];
    if (state === OUT) this.cross(x, y, w, h);
    else if (state === SUSPECT) this.outline(x, y, w, h, colours.warn, 2);
    else if (state === ABSENT) this.hatch(x, y, w, h, 5);
  }

  // Draws every pod's share of every device, one pod's on top of the other's.
  stacks(cells) {
    const { context } = this;
    const byTint = new Map();
    for (const cell of cells) this.stack(cell, byTint);
    for (const [tint, boxes] of byTint) {
      context.fillStyle = this.pods[tint];
      for (let i = 0; i < boxes.length; i += 4) context.fillRect(boxes[i], boxes[i + 1], boxes[i + 2], boxes[i + 3]);
    }
  }

  stack(cell, byTint) {
    const { place } = this;
    const part = this.mode === "compute" ? 0 : 1;
    const shares = this.fleet.shares[cell];
    const top = place.y[cell];
    const h = place.size.height;
    let bottom = top + h;
    for (let i = 0; i < shares.length; i += STRIDE) {
      const height = Math.min(shares[i + part] * h / 1000, bottom - top);
      if (height <= 0) continue;
      const boxes = byTint.get(shares[i + 2]) ?? [];
      boxes.push(place.x[cell], bottom - height, place.w[cell] - bar(place.w[cell]), height > 3 ? height - 1 : height);
      byTint.set(shares[i + 2], boxes);
      bottom -= height;
    }
  }

  foreign(cell, x, y, w, h) {
    const height = Math.min(this.fleet.foreign[cell], 1000) * h / 1000;
    if (height >= 1) this.hatch(x, y, w, height, 4);
  }

  hatch(x, y, w, h, step) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.strokeStyle = this.colours.foreign;
    context.lineWidth = 1.5;
    context.beginPath();
    for (let offset = -h; offset < w; offset += step) {
      context.moveTo(x + offset, y + h);
      context.lineTo(x + offset + h, y);
    }
    context.stroke();
    context.restore();
  }

  cross(x, y, w, h) {
    const { context } = this;
    this.outline(x, y, w, h, this.colours.bad, w >= 9 ? 2 : 1);
    context.beginPath();
    context.moveTo(x + 1, y + h - 1);
    context.lineTo(x + w - 1, y + 1);
    context.stroke();
  }

  outline(x, y, w, h, colour, width) {
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(x + width / 2, y + width / 2, w - width, h - width);
  }

  frame(cell) {
    const { place } = this;
    if (!place || !place.w[cell]) return;
    this.outline(place.x[cell] - 1.5, place.y[cell] - 1.5, place.w[cell] + 3, place.size.height + 3, this.colours.accent, 2);
  }

  at(event) {
    if (!this.place) return -1;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const { place } = this;
    for (const cell of place.cells) {
      if (y >= place.y[cell] - 1 && y < place.y[cell] + place.size.height + 1 && x >= place.x[cell] - 1 && x < place.x[cell] + place.w[cell] + 1) return cell;
    }
    return -1;
  }

  // Arrows go to the next device on the line or to the nearest on the next line, Home and End to the first and last,
  // Escape lets go.
  step(event, onPick) {
    if (!this.place || !this.place.cells.length) return;
    const order = this.order();
    const at = order.indexOf(this.marked);
    const to = {
      ArrowRight: () => order[(at + 1) % order.length],
      ArrowLeft: () => order[(Math.max(at, 0) - 1 + order.length) % order.length],
      ArrowDown: () => this.beside(1) ?? order[0],
      ArrowUp: () => this.beside(-1) ?? order[order.length - 1],
      Home: () => order[0],
      End: () => order[order.length - 1],
      Escape: () => -1,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const cell = to();
    onPick(cell);
    if (cell >= 0) this.reveal(cell);
  }

  order() {
    return this.place.titles.flatMap(({ group }) => group.cells);
  }

  // Returns the device nearest to the marked one on the next line in a direction; undefined at the edge.
  beside(direction) {
    const { place, marked } = this;
    if (marked < 0 || !place.w[marked]) return undefined;
    let found;
    let least = Infinity;
    for (const cell of place.cells) {
      const down = (place.y[cell] - place.y[marked]) * direction;
      const far = down <= 0.5 ? Infinity : down * 10_000 + Math.abs(place.x[cell] - place.x[marked]);
      if (far < least) [found, least] = [cell, far];
    }
    return found;
  }

  // Scrolls the page so that a device can be seen.
  reveal(cell) {
    const top = this.canvas.getBoundingClientRect().top + this.place.y[cell];
    const bottom = top + this.place.size.height;
    if (top < 0) scrollBy(0, top - 60);
    else if (bottom > innerHeight) scrollBy(0, bottom - innerHeight + 60);
  }
}
