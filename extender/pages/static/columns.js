// Turns the columns of an update (base64, little-endian) into typed arrays, and keeps the newest state of every device.

export const UNKNOWN = 65535;
export const STRIDE = 4;

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) out[i] = raw.charCodeAt(i);
  return out.buffer;
}

const shorts = (text) => new Uint16Array(bytes(text));
const longs = (text) => new Uint32Array(bytes(text));
const NAMES = ["compute", "memory", "foreign", "load", "used", "state"];
const NOTHING = new Uint16Array(0);

export class Fleet {
  constructor(layout) {
    this.nodes = layout.nodes;
    this.kinds = layout.kinds;
    this.namespaces = [];
    this.nodeOf = longs(layout.node_of);
    this.kindOf = shorts(layout.kind_of);
    this.count = this.nodeOf.length;
    for (const name of NAMES) this[name] = new Uint16Array(this.count);
    this.shares = new Array(this.count).fill(NOTHING);
  }

  // Takes changed cells in and returns their indices. A device's shares are (compute, memory, tint, namespace) in turn;
  // who may not see names is told no namespaces.
  take(cells) {
    const index = longs(cells.index);
    for (const name of NAMES) {
      const column = shorts(cells[name]);
      for (let i = 0; i < index.length; i += 1) this[name][index[i]] = column[i];
    }
    const counts = shorts(cells.counts);
    const parts = [shorts(cells.share_compute), shorts(cells.share_memory), shorts(cells.share_tint)];
    parts.push(cells.share_space ? shorts(cells.share_space) : new Uint16Array(parts[0].length).fill(UNKNOWN));
    let at = 0;
    for (let i = 0; i < index.length; i += 1) {
      const shares = counts[i] ? new Uint16Array(counts[i] * STRIDE) : NOTHING;
      for (let k = 0; k < counts[i]; k += 1, at += 1) {
        for (let p = 0; p < STRIDE; p += 1) shares[k * STRIDE + p] = parts[p][at];
      }
      this.shares[index[i]] = shares;
    }
    return index;
  }
}
