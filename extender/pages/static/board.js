// Draws every device on one canvas: shares stacked in their pods' colours, the measurement as a bar at the right edge,
// health as frame and pattern. Only cells that changed are drawn again.

import { UNKNOWN } from "./columns.js";
import { arrange } from "./arrange.js";

const BETWEEN = "  ·  ";
const ABSENT = 0;
const OUT = 1;
const SUSPECT = 2;

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
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.drawAll());
    new ResizeObserver(() => this.fit()).observe(canvas.parentElement);
    canvas.addEventListener("pointermove", (event) => onPoint(this.at(event)));
    canvas.addEventListener("pointerleave", () => onPoint(-1));
    canvas.addEventListener("click", (event) => onPick(this.at(event)));
    canvas.addEventListener("keydown", (event) => this.step(event, onPick));
  }

  show(fleet) {
    this.fleet = fleet;
    this.width = 0;
    this.fit();
  }

  fit() {
    const style = getComputedStyle(this.canvas.parentElement);
    const width = Math.floor(this.canvas.parentElement.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
    if (!this.fleet || width <= 0 || width === this.width) return;
    this.width = width;
    this.place = arrange(this.fleet, width, this.context);
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
    for (let cell = 0; cell < this.fleet.count; cell += 1) this.cell(cell);
    if (this.marked >= 0) this.frame(this.marked);
  }

  draw(index) {
    if (!this.place) return;
    for (const cell of index) this.cell(cell);
    this.titles();
    if (this.marked >= 0) this.frame(this.marked);
  }

  theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = {};
    for (const name of ["surface", "track", "text", "quiet", "measured", "foreign", "warn", "bad", "accent"]) this.colours[name] = read(name);
    this.pods = Array.from({ length: 256 }, (_, tint) => podColour(tint, this.dark.matches));
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

  cell(cell) {
    const { context, fleet, place, colours } = this;
    const x = place.x[cell];
    const y = place.y[cell];
    const w = place.w[cell];
    const h = place.size.height;
    const state = fleet.state[cell];
    const bar = w >= 12 ? 4 : w >= 7 ? 2 : 1;
    context.fillStyle = colours.surface;
    context.fillRect(x - 1.5, y - 1.5, w + 3, h + 3);
    context.fillStyle = colours.track;
    context.fillRect(x, y, w, h);
    this.stack(cell, x, y, w - bar, h);
    if (this.mode === "memory") this.foreign(cell, x, y, w - bar, h);
    const measured = this.mode === "compute" ? fleet.load[cell] : fleet.used[cell];
    if (measured !== UNKNOWN) {
      const height = Math.min(measured, 1000) * h / 1000;
      context.fillStyle = colours.measured;
      context.fillRect(x + w - bar, y + h - height, bar, height);
    }
    if (state === OUT) this.cross(x, y, w, h);
    else if (state === SUSPECT) this.outline(x, y, w, h, colours.warn, 2);
    else if (state === ABSENT) this.hatch(x, y, w, h, 5);
  }

  stack(cell, x, y, w, h) {
    const { context, fleet } = this;
    const part = this.mode === "compute" ? 0 : 1;
    const shares = fleet.shares[cell];
    let bottom = y + h;
    for (let i = 0; i < shares.length; i += 3) {
      const height = Math.min(shares[i + part] * h / 1000, bottom - y);
      if (height <= 0) continue;
      context.fillStyle = this.pods[shares[i + 2]];
      context.fillRect(x, bottom - height, w, height > 3 ? height - 1 : height);
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
    this.outline(place.x[cell] - 1.5, place.y[cell] - 1.5, place.w[cell] + 3, place.size.height + 3, this.colours.accent, 2);
  }

  at(event) {
    if (!this.place) return -1;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const { place } = this;
    for (let cell = 0; cell < this.fleet.count; cell += 1) {
      if (y >= place.y[cell] - 1 && y < place.y[cell] + place.size.height + 1 && x >= place.x[cell] - 1 && x < place.x[cell] + place.w[cell] + 1) return cell;
    }
    return -1;
  }

  step(event, onPick) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined || !this.place) return;
    event.preventDefault();
    const order = this.place.titles.flatMap(({ group }) => group.cells);
    const at = order.indexOf(this.marked);
    onPick(order[(at + by + order.length) % order.length]);
  }
}
