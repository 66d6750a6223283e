// Turns the columns of an update (base64, little-endian) into typed arrays, and keeps the newest state of every device.

export const UNKNOWN = 65535;

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
    this.nodeOf = longs(layout.node_of);
    this.kindOf = shorts(layout.kind_of);
    this.count = this.nodeOf.length;
    for (const name of NAMES) this[name] = new Uint16Array(this.count);
    this.shares = new Array(this.count).fill(NOTHING);
  }

  // Takes changed cells in and returns their indices. A device's shares are (compute, memory, tint) triples.
  take(cells) {
    const index = longs(cells.index);
    for (const name of NAMES) {
      const column = shorts(cells[name]);
      for (let i = 0; i < index.length; i += 1) this[name][index[i]] = column[i];
    }
    const counts = shorts(cells.counts);
    const parts = [shorts(cells.share_compute), shorts(cells.share_memory), shorts(cells.share_tint)];
    let at = 0;
    for (let i = 0; i < index.length; i += 1) {
      const triples = counts[i] ? new Uint16Array(counts[i] * 3) : NOTHING;
      for (let k = 0; k < counts[i]; k += 1, at += 1) {
        for (let p = 0; p < 3; p += 1) triples[k * 3 + p] = parts[p][at];
      }
      this.shares[index[i]] = triples;
    }
    return index;
  }
}
