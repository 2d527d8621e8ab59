// What was clicked: a cable with the counters of both its ports, or a node; else which ports have most of what is shown.

import { fill, make } from "./dom.js";
import { change, count, counted, rate } from "./format.js";

const MOST = 12;

/** The ports with most of a metric. */
export function most(element, metric, cables, port, choose) {
  const rows = cables.flatMap((cable) =>
    cable.ends.map((end, i) => ({ cable, end, to: cable.ends[1 - i], figures: port(end) })),
  );
  const found = rows
    .filter((row) => row.figures && metric.of(row.figures) > 0)
    .sort((a, b) => metric.of(b.figures) - metric.of(a.figures))
    .slice(0, MOST)
    .map(({ cable, end, to, figures }) =>
      make("tr", {},
        make("td", { class: "text" }, make("button", { type: "button", class: "link", on: { click: () => choose("cable", cable.name) } }, end)),
        make("td", { class: "text" }, to),
        make("td", {}, metric.text(metric.of(figures))),
        ...(metric.name === "load" ? [make("td", {}, rate(figures.sent()))] : []),
      ),
    );
  if (!found.length) {
    fill(element, make("p", { class: "soft" }, `None has any. Click a cable or a node for its counters.`));
    return;
  }
  const heads = ["port", "to", metric.label.toLowerCase(), ...(metric.name === "load" ? ["sent"] : [])];
  const head = make("tr", {}, ...heads.map((h, i) => make("th", { class: i < 2 ? "text" : null }, h)));
  fill(element, make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...found))));
}

/** Places beside each other, each with its counters now and, if `changes`, what they have grown by; no rows of zeros. */
export function counters(places, nothing, changes) {
  const names = [...new Set(places.flatMap((place) => Object.keys(place.now)))];
  const rows = names
    .filter((name) => places.some((place) => place.now[name]))
    .map((name) =>
      make("tr", {}, make("td", { class: "text name" }, ...name.split("_").flatMap((part, i) => (i ? ["_", make("wbr"), part] : [part]))),
        ...places.map((place) => {
          const now = place.now[name] ?? 0;
          const grown = !changes || name.includes("_max") || name === "queue_bytes" ? 0 : now - (place.then[name] ?? 0);
          return make("td", {}, now ? count(now) : "-", ...(grown ? [make("span", { class: "change" }, change(grown))] : []));
        }),
      ),
    );
  if (!rows.length) return make("p", { class: "soft" }, nothing);
  const head = make("tr", {}, make("th", { class: "text" }, "counter"),
    ...places.map((place) => make("th", { title: place.about }, place.name)));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

export function faultsOf(faults, kind, name) {
  const here = faults.filter((fault) => (kind === "cable" ? fault.cables : fault.nodes).includes(name));
  return here.map((f) => make("p", { class: "bad" }, `fault ${f.id}: ${f.fault} on ${f.on}, ${f.state}, ${counted(f.hits, "hit")}`));
}
