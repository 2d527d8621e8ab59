// Figures for people: the units of docs and of the command line.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });

export const count = (n) => whole.format(n);

/** `1 hit`, `2 hits`. */
export const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

export const change = (n) => (n > 0 ? `+${whole.format(n)}` : whole.format(n));

/** Emulated time as `testbed status` says it. */
export const microseconds = (ns) => `${three.format(ns / 1000)} us`;

/** A span of time, as short as it can be read. */
export function span(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) if (ns >= size) return `${significant(ns / size)} ${unit}`;
  return `${significant(ns)} ns`;
}

export function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) if (n >= size) return `${significant(n / size)} ${unit}`;
  return `${whole.format(n)} B`;
}

export function rate(bps) {
  for (const [unit, size] of [["Tb/s", 1e12], ["Gb/s", 1e9], ["Mb/s", 1e6]]) if (bps >= size) return `${significant(bps / size)} ${unit}`;
  return `${whole.format(bps)} b/s`;
}

export const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;

const significant = (n) => String(Number(n.toPrecision(4)));
