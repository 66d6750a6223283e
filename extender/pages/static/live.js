// The live page: one stream of updates in, one board and three lists out. A viewer's token is kept in memory only.

import { Fleet } from "./columns.js";
import { Board, podColour } from "./board.js";
import { Filters } from "./filters.js";
import { deviceHistory } from "./history.js";
import { decisionItem, deviceDetails, deviceInShort, element, percent, waitingItem } from "./words.js";

const byId = (id) => document.getElementById(id);
const HINT_MS = 120;
const AGAIN_MS = 2000;

let fleet = null;
let kept = -1;
let pointed = -1;
let asked = 0;
let timer = 0;
let token = "";
let told = { waiting: [], decisions: [], summary: { waiting: 0 } };
let cut = new AbortController();

const board = new Board(byId("board"), point, pick);
const filters = new Filters(byId("filters"), select);

const asViewer = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function connect() {
  for (;;) {
    try {
      await follow();
    } catch {
      if (cut.signal.aborted) continue;
    }
    say("lost", "connection lost, trying again");
    await new Promise((wake) => setTimeout(wake, AGAIN_MS));
  }
}

async function follow() {
  cut = new AbortController();
  const answer = await fetch("/v1/stream", { headers: asViewer(), signal: cut.signal });
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  say("live", "live");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) take(JSON.parse(event.slice("data: ".length)));
  }
}

function say(state, text) {
  const line = byId("connection");
  line.dataset.state = state;
  line.textContent = text;
}

function take(update) {
  told = update;
  summarise(update.summary);
  byId("viewer").hidden = update.names;
  if (update.layout) {
    const name = chosen() >= 0 ? label(chosen()) : null;
    fleet = new Fleet(update.layout);
    fleet.namespaces.push(...(update.namespaces ?? []));
    fleet.take(update.cells);
    filters.offer(fleet, pods());
    board.marked = -1;
    pointed = -1;
    board.show(fleet, filters.select(fleet));
    kept = name === null ? -1 : find(name);
    board.mark(kept);
    shown();
  } else if (update.cells && fleet) {
    fleet.namespaces.push(...(update.namespaces ?? []));
    change(fleet.take(update.cells));
  }
  list();
  if (chosen() >= 0) describe();
}

// Lists the pods of the chosen namespace. Of those that wait, the oldest are told one by one and the rest counted.
function list() {
  const waiting = told.waiting.filter((each) => filters.wants(each.pod)).map(waitingItem);
  const more = told.summary.waiting - told.waiting.length;
  if (more > 0) waiting.push(element("p", "hint", `${more} more have waited less long.`));
  if (!waiting.length) waiting.push(element("p", "hint", told.waiting.length ? "No pod of this namespace waits." : "No pod waits for a GPU."));
  byId("waiting").replaceChildren(...waiting);
  byId("decisions").replaceChildren(...told.decisions.filter((each) => filters.wants(each.pod)).map(decisionItem));
}

const pods = () => told.waiting.map((each) => each.pod);

// Draws what changed; where a filter now matches other devices, all that it matches.
function change(index) {
  filters.offer(fleet, pods());
  const cells = filters.isOn ? filters.select(fleet) : board.cells;
  if (cells.length === board.cells.length && cells.every((cell, i) => cell === board.cells[i])) board.draw(index);
  else board.show(fleet, cells);
  shown();
}

function select() {
  list();
  if (!fleet) return;
  pointed = -1;
  board.show(fleet, filters.select(fleet));
  shown();
}

// Says what the board shows, for people and for whoever measures.
function shown() {
  const { length } = board.cells;
  byId("empty").hidden = length > 0;
  byId("empty").textContent = fleet.count ? "No GPU matches." : "No GPU has been reported yet.";
  byId("board").dataset.devices = length;
  if (!performance.getEntriesByName("fleet-shown").length) performance.mark("fleet-shown");
}

function summarise(found) {
  const text = {
    devices: found.devices,
    nodes: `on ${found.nodes} nodes`,
    compute: percent(found.compute),
    memory: percent(found.memory),
    load: percent(found.load),
    "waiting-count": found.waiting,
    pods: `${found.pods} placed`,
    rate: `${found.decisions_per_s} /s`,
    trouble: found.out,
    stale: found.stale ? `${found.stale} nodes silent` : "all nodes report",
  };
  for (const [id, value] of Object.entries(text)) byId(id).textContent = value;
  byId("compute-meter").value = found.compute;
  byId("memory-meter").value = found.memory;
  byId("load-meter").value = found.load ?? 0;
}

const chosen = () => (pointed >= 0 ? pointed : kept);
const slotOf = (cell) => {
  let first = cell;
  while (first > 0 && fleet.nodeOf[first - 1] === fleet.nodeOf[cell]) first -= 1;
  return cell - first;
};
const label = (cell) => ({ node: fleet.nodes[fleet.nodeOf[cell]], slot: slotOf(cell) });

function find({ node, slot }) {
  const index = fleet.nodes.indexOf(node);
  const first = index < 0 ? -1 : fleet.nodeOf.indexOf(index);
  return first < 0 || fleet.nodeOf[first + slot] !== index ? -1 : first + slot;
}

function point(cell) {
  if (cell === pointed) return;
  pointed = cell;
  board.mark(chosen());
  clearTimeout(timer);
  if (chosen() >= 0) timer = setTimeout(describe, HINT_MS);
}

function pick(cell) {
  kept = cell === kept ? -1 : cell;
  pointed = -1;
  board.mark(chosen());
  if (chosen() >= 0) describe();
}

async function describe() {
  const { node, slot } = label(chosen());
  asked += 1;
  const mine = asked;
  const answer = await fetch(`/v1/live/nodes/${encodeURIComponent(node)}`, { headers: asViewer() });
  if (!answer.ok || mine !== asked) return;
  const found = await answer.json();
  const device = found.devices[slot];
  if (!device) return;
  const past = found.history[device.uuid];
  const colour = (tint) => podColour(tint, board.isDark);
  byId("details").replaceChildren(...deviceDetails(found, device, colour), ...(past ? deviceHistory(past) : []));
  byId("picked").textContent = deviceInShort(found, device);
}

for (const button of byId("modes").querySelectorAll("button")) {
  button.addEventListener("click", () => {
    for (const each of byId("modes").querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === button));
    byId("measured-key").textContent = button.dataset.mode === "compute" ? "measured load" : "memory in use";
    board.setMode(button.dataset.mode);
  });
}

byId("viewer").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  cut.abort();
});

connect();
