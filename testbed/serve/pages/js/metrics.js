// What cables can be coloured by: of each of a cable's two directions, what its sending port says.

import { bytes, count, percent } from "./format.js";

const GAP_BYTES = 20; // preamble and gap of a frame: on the cable, in no counter of bytes

/** Figures of one port: `row` now, `base` then (null: since the fabric came up), `ns` between. */
export class Port {
  constructor(columns, row, base, ns) {
    this.columns = columns;
    this.row = row;
    this.base = base;
    this.ns = ns;
  }

  now(column) {
    return this.row[this.columns.indexOf(column)];
  }

  grown(column) {
    const i = this.columns.indexOf(column);
    return this.row[i] - (this.base ? this.base[i] : 0);
  }

  /** Share of the cable that was taken, with preambles and gaps. */
  load() {
    const rate = this.now("rate_bps");
    if (!(this.ns > 0) || !rate) return 0;
    return ((this.grown("tx_bytes") + GAP_BYTES * this.grown("tx_frames")) * 8e9) / this.ns / rate;
  }

  /** Bits per second of what was sent, without preambles and gaps. */
  sent() {
    return this.ns > 0 ? (this.grown("tx_bytes") * 8e9) / this.ns : 0;
  }
}

const counted = (name, label, about, column, limits) => ({
  name, label, about, limits, of: (port) => port.grown(column), text: count, unit: "",
});

/** `limits`: from where on each of the five levels begins. */
export const METRICS = [
  { name: "load", label: "Load", about: "share of the cable's rate", limits: [0.001, 0.1, 0.4, 0.7, 0.9], of: (port) => port.load(), text: percent },
  { name: "queue", label: "Queue", about: "bytes that wait at the port now", limits: [1, 16e3, 64e3, 256e3, 1e6], of: (port) => port.now("queue_bytes"), text: bytes },
  counted("pauses", "Pauses", "PFC frames (XOFF) that the port has sent", "tx_pause", [1, 10, 100, 1e3, 1e4]),
  counted("marks", "Marks", "packets that the port has marked CE", "ecn_marked", [1, 10, 100, 1e3, 1e4]),
  counted("drops", "Drops", "frames dropped at the port", "drops", [1, 10, 100, 1e3, 1e4]),
];

/** Where the clock stands between steps nothing waits any more: what was the most that did says more. */
const WATERMARK = { name: "queue", label: "Queue", about: "most bytes that have waited at the port since the job began", limits: METRICS[1].limits, of: (port) => port.now("queue_max_bytes"), text: bytes };

export const metricsOf = (held) => (held ? METRICS.map((metric) => (metric.name === WATERMARK.name ? WATERMARK : metric)) : METRICS);

/** What a drill's student can see of a cable, by the views of the drill. */
export const STUDENTS = [
  counted("frames", "Frames", "frames that the port has sent", "frames", [1, 100, 1e3, 1e4, 1e5]),
  counted("errors", "Errors", "frames that came in damaged at the port", "errors", [1, 10, 100, 1e3, 1e4]),
  counted("drops", "Drops", "frames dropped at the port", "drops", [1, 10, 100, 1e3, 1e4]),
  counted("pauses", "Pauses", "PFC frames (XOFF) that the port has sent", "tx_pause", [1, 10, 100, 1e3, 1e4]),
  counted("marks", "Marks", "packets that the port has marked CE", "ecn_marked", [1, 10, 100, 1e3, 1e4]),
];

export const level = (metric, value) => metric.limits.filter((limit) => value >= limit).length;

/** What each level means, for a legend: [class, text]. */
export function levels(metric) {
  const zero = metric.name === "load" ? "idle" : metric.text(0);
  return [["", zero], ...metric.limits.map((from, i) => [`l${i + 1}`, i === 0 && metric.name === "load" ? "above 0 %" : `${metric.text(from)} and more`])];
}
