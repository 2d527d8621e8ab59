// Tables as `testbed show` prints them: sorted by a click, filtered, without what is nothing but zeros.

import { fill, make } from "./dom.js";
import { count } from "./format.js";

const MOST_ROWS = 1000;
const LONG = 60; // characters of a text that may be broken

export class Tables {
  constructor(element) {
    this.element = element;
    this.tables = [];
    this.filter = "";
    this.nonzero = true;
    this.sorted = new Map(); // table -> [column, descending]
  }

  show(tables) {
    this.tables = tables;
    this.draw();
  }

  draw() {
    const focused = document.activeElement?.dataset?.sort;
    const left = [...this.element.querySelectorAll(".scroll")].map((e) => [e.scrollLeft, e.scrollTop]);
    fill(this.element, ...this.tables.flatMap((table) => this.#table(table)));
    [...this.element.querySelectorAll(".scroll")].forEach((e, i) => left[i] && e.scrollTo(...left[i]));
    if (focused) this.element.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  #table(table) {
    const heading = table.title ? [make("h3", {}, table.title)] : [];
    const named = new Set(table.named ?? []);
    const counts = (row, column) => typeof row[column] === "number" && !named.has(column);
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (row, text) => Object.values(row).some((v) => String(v).toLowerCase().includes(text));
    const fits = (row) => words.every((word) => word.split("|").some((either) => either && has(row, either)));
    let rows = table.rows.filter(fits);
    const every = [...new Set(table.rows.flatMap(Object.keys))];
    const numbers = every.filter((c) => table.rows.some((row) => counts(row, c)));
    if (this.nonzero && numbers.length) rows = rows.filter((row) => numbers.some((c) => row[c] !== 0));
    if (!rows.length) {
      const why = !table.rows.length ? "no rows" : words.length ? "no row fits" : "nothing but zeros";
      return [...heading, make("p", { class: "soft" }, why)];
    }
    const columns = every.filter((c) => !(this.nonzero && numbers.includes(c) && rows.every((row) => row[c] === 0)));
    const order = this.sorted.get(table.name);
    if (order) rows = [...rows].sort((a, b) => compare(a[order[0]], b[order[0]]) * (order[1] ? -1 : 1));
    const head = make("tr", {}, ...columns.map((c) => this.#head(table, c, numbers.includes(c), order)));
    const body = rows.slice(0, MOST_ROWS).map((row) => make("tr", {}, ...columns.map((c) => cell(row[c], counts(row, c)))));
    const more = rows.length > MOST_ROWS ? [make("p", { class: "soft" }, `${rows.length - MOST_ROWS} more rows: filter them`)] : [];
    return [...heading, make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body))), ...more];
  }

  #head(table, column, number, order) {
    const sort = () => {
      const [by, down] = this.sorted.get(table.name) ?? [];
      if (by !== column) this.sorted.set(table.name, [column, number]);
      else if (down === number) this.sorted.set(table.name, [column, !number]);
      else this.sorted.delete(table.name);
      this.draw();
    };
    const sorted = order?.[0] === column ? (order[1] ? "descending" : "ascending") : null;
    const button = make("button", { type: "button", "data-sort": `${table.name} ${column}`, on: { click: sort } }, column);
    return make("th", { class: number ? null : "text", "aria-sort": sorted, scope: "col" }, button);
  }
}

function cell(value, number) {
  if (number) return make("td", {}, Number.isInteger(value) ? count(value) : String(value));
  const text = value === null || value === undefined ? "" : String(value);
  return make("td", { class: text.length > LONG ? "text long" : "text" }, text);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}
