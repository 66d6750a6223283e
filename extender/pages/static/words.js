// The lists beside the board. Everything is set as text; nothing that came over the wire is ever parsed as HTML.

export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const percent = (share) => (share === null ? "–" : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`);
export const mib = (amount) => (amount === null || amount === undefined ? "–" : amount >= 10240 ? `${(amount / 1024).toFixed(1)} GiB` : `${amount} MiB`);

const because = (reasons) => reasons.map(([nodes, sentence]) => `${nodes} × ${sentence}`).join(", ");
const seconds = (value) => (value < 100 ? `${value.toFixed(0)} s` : `${Math.floor(value / 60)} min`);

export function waitingItem(pod) {
  return element("li", "wait",
    element("span", "when", seconds(pod.for_s)),
    element("b", "", pod.pod),
    element("span", "asks", pod.asks),
    element("span", "why", pod.why || "not tried yet"));
}

export function decisionItem(decision) {
  const time = new Date(decision.at * 1000).toLocaleTimeString([], { hour12: false });
  const when = element("span", "when", `${time}  ${decision.ms} ms`);
  if (decision.verb === "bind" && decision.node && decision.devices) {
    const devices = decision.devices === 1 ? "1 GPU" : `${decision.devices} GPUs`;
    return element("li", "good", when, element("b", "", decision.pod), ` → ${decision.node}, ${devices}`,
      element("span", "why", [decision.policy && `policy ${decision.policy}`, decision.message].filter(Boolean).join("; ")));
  }
  const why = because(decision.reasons) || decision.message || decision.outcome;
  const title = decision.verb === "filter" ? ` fits on none of ${decision.nodes_in} nodes` : ` ${decision.verb}: ${decision.outcome}`;
  return element("li", decision.verb === "filter" ? "wait" : "bad", when, element("b", "", decision.pod), title, element("span", "why", why));
}

export function deviceDetails(node, device, colour) {
  const name = device.mig ? `${device.product} ${device.mig}` : device.product;
  const booked = device.shares.reduce((sum, share) => sum + share.memory_mib, 0);
  const milli = device.shares.reduce((sum, share) => sum + share.compute_milli, 0);
  const parts = [
    element("h2", "", `${name} `, element("span", "", `${device.generation.charAt(0).toUpperCase()}${device.generation.slice(1)}, on ${node.node}`)),
    element("p", "facts", `${device.uuid}`),
    element("p", "facts", `booked ${percent(milli / device.capacity_milli)} compute, ${mib(booked)} of ${mib(device.capacity_mib)}; `
      + `measured ${device.utilisation === null ? "–" : percent(device.utilisation)} load, ${mib(device.used_mib)}`
      + `${device.foreign_mib ? `; foreign ${mib(device.foreign_mib)}` : ""}`
      + `${device.temperature_celsius === null ? "" : `; ${device.temperature_celsius} °C`}`),
  ];
  if (device.problem || !node.fresh) parts.push(element("p", "problem", device.problem || "no fresh report from this node"));
  parts.push(device.shares.length ? shareTable(device, colour) : element("p", "hint", "nobody holds a share"));
  return parts;
}

export function deviceInShort(node, device) {
  const milli = device.shares.reduce((sum, share) => sum + share.compute_milli, 0);
  return `${device.product} on ${node.node}, ${device.health}, ${percent(milli / device.capacity_milli)} of compute booked by ${device.shares.length} pods`;
}

function shareTable(device, colour) {
  const head = element("tr", "", ...["pod", "memory", "used", "compute", "used"].map((text) => element("th", "", text)));
  const rows = device.shares.map((share) => {
    const swatch = element("i", "swatch");
    swatch.style.background = colour(share.tint);
    const isOver = share.used_mib !== null && share.used_mib > share.memory_mib;
    return element("tr", "",
      element("td", "", swatch, share.pod),
      element("td", "", mib(share.memory_mib)),
      element("td", isOver ? "over" : "", mib(share.used_mib)),
      element("td", "", percent(share.compute_milli / device.capacity_milli)),
      element("td", "", percent(share.used_sm)));
  });
  return element("table", "", element("thead", "", head), element("tbody", "", ...rows));
}
