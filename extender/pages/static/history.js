// The last hour of one device: booked compute as an area, measured load as a line, and who was placed there last.

import { element } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360;
const HEIGHT = 54;

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

export function deviceHistory(past) {
  const placed = past.placed.map((each) => element("li", "", element("span", "when", clock(each.at)), each.pod));
  return [
    ...(past.trace.length > 1 ? chart(past.trace) : [element("p", "hint", "Its history begins when this replica has seen it for two minutes.")]),
    ...(placed.length ? [element("h3", "", "Placed here last"), element("ul", "placed", ...placed)] : []),
  ];
}

// Points outside what is known are left out, so a gap is a gap; times are to scale.
function chart(trace) {
  const first = trace[0].at;
  const span = Math.max(trace[trace.length - 1].at - first, 1);
  const x = (at) => ((at - first) / span * WIDTH).toFixed(1);
  const y = (share) => (HEIGHT - Math.min(share, 1) * HEIGHT).toFixed(1);
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "trace", preserveAspectRatio: "none" });
  drawing.setAttribute("aria-label", `booked compute and measured load since ${clock(first)}`);
  const booked = trace.filter((sample) => sample.compute !== null);
  if (booked.length) {
    const corners = booked.map((sample) => `${x(sample.at)},${y(sample.compute)}`);
    const [left, right] = [x(booked[0].at), x(booked[booked.length - 1].at)];
    drawing.append(shape("polygon", { points: `${left},${HEIGHT} ${corners.join(" ")} ${right},${HEIGHT}`, class: "booked" }));
  }
  for (const run of runs(trace)) drawing.append(shape("polyline", { points: run.map((sample) => `${x(sample.at)},${y(sample.load)}`).join(" "), class: "load" }));
  const legend = element("p", "facts", `since ${clock(first)}: `, element("i", "key booked"), " compute booked ", element("i", "key load"), " load measured");
  return [drawing, legend];
}

function runs(trace) {
  const found = [];
  let open = null;
  for (const sample of trace) {
    if (sample.load === null) open = null;
    else if (open) open.push(sample);
    else found.push(open = [sample]);
  }
  return found;
}
