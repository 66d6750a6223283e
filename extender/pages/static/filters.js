// Which devices the board shows: by product, by health, and by the namespace of a pod that holds a share. The lists of
// pods follow the namespace.

import { STRIDE } from "./columns.js";
import { element } from "./words.js";

const ANY = "";
const HEALTH = [["usable", [2, 3]], ["healthy", [3]], ["suspect", [2]], ["out of use", [1]], ["no fresh report", [0]]];

export class Filters {
  constructor(root, onChange) {
    this.product = root.querySelector("#product");
    this.health = root.querySelector("#health");
    this.namespace = root.querySelector("#namespace");
    this.count = root.querySelector("#matching");
    this.clear = root.querySelector("#clear");
    this.selects = [this.product, this.health, this.namespace];
    fill(this.health, HEALTH.map(([words]) => words));
    for (const select of this.selects) select.addEventListener("change", onChange);
    this.clear.addEventListener("click", () => {
      for (const select of this.selects) select.value = ANY;
      onChange();
    });
  }

  get isOn() {
    return this.selects.some((select) => select.value !== ANY);
  }

  // Offers what there is now; a choice that is gone stays, and matches nothing.
  offer(fleet, waiting) {
    const spaces = new Set([...fleet.namespaces, ...waiting.filter((pod) => pod.includes("/")).map((pod) => pod.split("/", 1)[0])]);
    fill(this.product, [...new Set(fleet.kinds.map((kind) => kind.product))].sort());
    fill(this.namespace, [...spaces].sort());
    this.namespace.closest("label").hidden = spaces.size === 0;
  }

  // Tells whether a pod, by "namespace/name", is in the namespace that is looked at.
  wants(pod) {
    return this.namespace.value === ANY || pod.startsWith(`${this.namespace.value}/`);
  }

  // Returns the devices that match, in drawing order, and says how many they are.
  select(fleet) {
    const product = this.product.value;
    const states = HEALTH.find(([words]) => words === this.health.value)?.[1];
    const isChosen = this.namespace.value !== ANY;
    const space = fleet.namespaces.indexOf(this.namespace.value);
    const cells = [];
    for (let cell = 0; cell < fleet.count; cell += 1) {
      if (product !== ANY && fleet.kinds[fleet.kindOf[cell]].product !== product) continue;
      if (states && !states.includes(fleet.state[cell])) continue;
      if (isChosen && !holds(fleet.shares[cell], space)) continue;
      cells.push(cell);
    }
    const all = fleet.count.toLocaleString("en");
    this.count.textContent = this.isOn ? `${cells.length.toLocaleString("en")} of ${all} GPUs` : "";
    this.clear.hidden = !this.isOn;
    return cells;
  }
}

function holds(shares, space) {
  for (let i = STRIDE - 1; i < shares.length; i += STRIDE) if (shares[i] === space) return true;
  return false;
}

function fill(select, values) {
  const chosen = select.value;
  const wanted = chosen === ANY || values.includes(chosen) ? values : [...values, chosen];
  const present = [...select.options].slice(1).map((option) => option.value);
  if (wanted.length === present.length && wanted.every((value, i) => value === present[i])) return;
  const options = wanted.map((value) => {
    const option = element("option", "", value);
    option.value = value;
    return option;
  });
  select.replaceChildren(select.options[0], ...options);
  select.value = chosen;
}
