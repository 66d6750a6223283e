// Where each device is drawn: nodes in groups by product, oldest generation first, cells as large as their number allows.

const SIZES = [
  { upTo: 240, width: 26, height: 64, gap: 3, label: 11 },
  { upTo: 900, width: 15, height: 30, gap: 2, label: 10 },
  { upTo: 4000, width: 9, height: 16, gap: 1, label: 0 },
  { upTo: Infinity, width: 5, height: 9, gap: 1, label: 0 },
];
const TITLE = 24;
const MIG_WIDTH = 0.6;
const BETWEEN_GROUPS = 28;
const TITLE_WORDS = 290;
const byName = new Intl.Collator("en", { numeric: true });

// Returns {height, x, y, w, size, cells, titles, labels}: x, y and w hold one number a device, w is 0 where it is not in
// `cells`. Groups share a line where they fit.
export function arrange(fleet, cells, width, context) {
  const size = SIZES.find((each) => cells.length <= each.upTo);
  const place = { size, x: new Float32Array(fleet.count), y: new Float32Array(fleet.count), w: new Float32Array(fleet.count) };
  place.cells = cells;
  place.titles = [];
  place.labels = [];
  let x = 0;
  let y = 0;
  let bottom = 0;
  for (const group of groups(fleet, cells)) {
    const wide = Math.min(groupWidth(fleet, group, size, context), width);
    if (x > 0 && x + wide > width) {
      x = 0;
      y = bottom;
    }
    place.titles.push({ group, x, y, width: wide });
    bottom = Math.max(bottom, flow(fleet, group, place, { x, y: y + TITLE }, wide) + (size.label ? 14 : 8));
    x += wide + BETWEEN_GROUPS;
  }
  place.height = Math.max(bottom, 1);
  return place;
}

// The width of all nodes on one line, or of the title where that is longer.
function groupWidth(fleet, group, size, context) {
  const between = betweenNodes(size);
  const nodes = group.nodes.reduce((sum, node) => sum + (node.width = nodeWidth(fleet, node, size, context)) + between, -between);
  context.font = "600 13px system-ui, sans-serif";
  return Math.max(Math.ceil(nodes), Math.ceil(context.measureText(group.name).width) + TITLE_WORDS);
}

const betweenNodes = (size) => (size.label ? 14 : size.gap * 4);

function nodeWidth(fleet, node, size, context) {
  const cells = node.cells.reduce((sum, cell) => sum + cellWidth(fleet, cell, size) + size.gap, -size.gap);
  if (!size.label) return cells;
  context.font = `${size.label}px system-ui, sans-serif`;
  return Math.max(cells, context.measureText(node.name).width);
}

function flow(fleet, group, place, origin, width) {
  const { size } = place;
  const line = size.height + (size.label ? size.label + 7 : size.gap * 3);
  const under = size.label ? size.label + 4 : 0;
  let x = 0;
  let y = origin.y;
  for (const node of group.nodes) {
    const wide = node.width;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += line;
    }
    if (size.label) place.labels.push({ text: node.name, x: origin.x + x, y: y + size.label });
    let left = 0;
    for (const cell of node.cells) {
      const w = cellWidth(fleet, cell, size);
      if (left > 0 && x + left + w > width) {
        left = 0;
        y += size.height + size.gap;
      }
      place.x[cell] = origin.x + x + left;
      place.y[cell] = y + under;
      place.w[cell] = w;
      left += w + size.gap;
    }
    x += Math.min(wide, width) + betweenNodes(size);
  }
  return y + line;
}

function cellWidth(fleet, cell, size) {
  const isInstance = fleet.kinds[fleet.kindOf[cell]].mig !== null;
  return isInstance ? Math.max(Math.round(size.width * MIG_WIDTH), 3) : size.width;
}

const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);

function groups(fleet, cells) {
  const nodes = new Map();
  for (const cell of cells) {
    const index = fleet.nodeOf[cell];
    if (!nodes.has(index)) nodes.set(index, { name: fleet.nodes[index], cells: [], products: new Map() });
    const node = nodes.get(index);
    const kind = fleet.kinds[fleet.kindOf[cell]];
    node.cells.push(cell);
    node.products.set(kind.product, kind);
  }
  const found = new Map();
  for (const node of nodes.values()) {
    const kinds = [...node.products.values()];
    const isMixed = kinds.length > 1;
    const key = isMixed ? "mixed" : kinds[0].product;
    if (!found.has(key)) {
      const name = isMixed ? "Mixed products" : kinds[0].product;
      found.set(key, { name, generation: isMixed ? "" : capital(kinds[0].generation), order: isMixed ? Infinity : kinds[0].order, nodes: [] });
    }
    found.get(key).nodes.push(node);
  }
  const ordered = [...found.values()].sort((a, b) => a.order - b.order || byName.compare(a.name, b.name));
  for (const group of ordered) {
    group.nodes.sort((a, b) => byName.compare(a.name, b.name));
    group.cells = group.nodes.flatMap((node) => node.cells);
  }
  return ordered;
}
