// The drawing of a fabric: each cable in two halves, coloured by what the port at that end sends; faults and ranks at work.

import { fill, svg } from "./dom.js";
import { level } from "./metrics.js";

const WIDTHS = [1.6, 2.4, 3, 3.6, 4.2, 5];

export class Network {
  /** `told` has chosen(kind, name) and hover(text | null, event); `about` is the server's description. */
  constructor(element, about, told) {
    this.about = about;
    this.told = told;
    this.cables = new Map();
    this.nodes = new Map();
    const picture = new DOMParser().parseFromString(about.svg, "image/svg+xml").documentElement;
    element.replaceChildren(document.importNode(picture, true));
    this.svg = element.firstElementChild;
    for (const title of this.svg.querySelectorAll("title")) title.remove(); // the page has its own
    this.#find();
    this.overlay = svg("g");
    this.badges = new Map(); // place -> what marks its faults
    this.svg.append(this.overlay);
  }

  #find() {
    const nodes = new Map(this.about.nodes.map((node) => [node.name, node]));
    for (const group of this.svg.querySelectorAll("[data-node]")) {
      const name = group.dataset.node;
      const box = group.querySelector("rect").getBBox();
      this.nodes.set(name, { group, box, about: nodes.get(name)?.about ?? "" });
      this.#open(group, "node", name);
    }
    const cables = new Map(this.about.cables.map((cable) => [cable.name, cable]));
    for (const path of [...this.svg.querySelectorAll("path[data-cable]")]) {
      const cable = cables.get(path.dataset.cable);
      if (cable) this.#split(path, cable);
    }
  }

  /** Two halves instead of the path, and a wide invisible line to point at. */
  #split(path, cable) {
    const d = path.getAttribute("d");
    const length = path.getTotalLength();
    const start = path.getPointAtLength(0);
    const ends = this.#near(start, cable.nodes[0]) <= this.#near(start, cable.nodes[1]) ? [0, 1] : [1, 0];
    const half = (dashes) => svg("path", { class: "half", d, "stroke-dasharray": dashes, "stroke-linecap": "butt" });
    const drawn = [half(`${length / 2} ${length}`), half(`0 ${length / 2} ${length}`)];
    const halves = []; // in the order of the cable's ends
    halves[ends[0]] = drawn[0];
    halves[ends[1]] = drawn[1];
    const down = svg("path", { class: "down", d, visibility: "hidden" });
    const hit = svg("path", { class: "hit", d });
    this.#open(hit, "cable", cable.name);
    path.replaceWith(...drawn, down, hit);
    const point = (share) => path.getPointAtLength(length * share);
    const places = [];
    places[ends[0]] = point(0.2);
    places[ends[1]] = point(0.8);
    this.cables.set(cable.name, { ...cable, halves, down, hit, middle: point(0.5), places });
  }

  #near(point, node) {
    const box = this.nodes.get(node)?.box;
    if (!box) return Infinity;
    const dx = Math.max(box.x - point.x, 0, point.x - box.x - box.width);
    const dy = Math.max(box.y - point.y, 0, point.y - box.y - box.height);
    return Math.hypot(dx, dy);
  }

  #open(element, kind, name) {
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "button");
    element.setAttribute("aria-label", `${kind} ${name}`);
    element.addEventListener("click", () => this.told.chosen(kind, name));
    element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.told.chosen(kind, name);
      }
    });
    element.addEventListener("pointermove", (event) => this.told.hover({ kind, name }, event));
    element.addEventListener("pointerleave", (event) => this.told.hover(null, event));
  }

  /** Colours by a metric; `port` gives the figures of a port by its name. */
  paint(metric, port) {
    for (const cable of this.cables.values()) {
      let up = true;
      cable.ends.forEach((end, i) => {
        const figures = port(end);
        const at = figures ? level(metric, metric.of(figures)) : 0;
        cable.halves[i].setAttribute("class", `half${at ? ` l${at}` : ""}`);
        cable.halves[i].setAttribute("stroke-width", WIDTHS[at]);
        if (figures && !figures.now("up")) up = false;
      });
      cable.down.setAttribute("visibility", up ? "hidden" : "visible");
      for (const half of cable.halves) half.setAttribute("visibility", up ? "visible" : "hidden");
    }
  }

  /** Faults, ports that are paused now, ranks at work. */
  mark(faults, busy, port) {
    const marks = [];
    for (const cable of this.cables.values()) {
      cable.ends.forEach((end, i) => {
        if (!port(end)?.now("paused")) return;
        const { x, y } = cable.places[i];
        for (const dx of [-3.4, 0.6]) marks.push(svg("rect", { class: "pause", x: x + dx, y: y - 5, width: 3, height: 10 }));
      });
    }
    const at = new Map(); // place -> faults
    const note = (key, place, fault) => at.set(key, { place, faults: [...(at.get(key)?.faults ?? []), fault] });
    for (const fault of faults) {
      for (const name of fault.cables) if (this.cables.has(name)) note(`cable ${name}`, this.cables.get(name).middle, fault);
      for (const name of fault.nodes) {
        const box = this.nodes.get(name)?.box;
        if (box) note(`node ${name}`, { x: box.x + box.width - 2, y: box.y + 2 }, fault);
      }
    }
    for (const [key, { place, faults: here }] of at) {
      const badge = this.badges.get(key) ?? this.#badge(key, place);
      badge.setAttribute("class", here.some((f) => f.state === "on") ? "badge" : "badge off");
      marks.push(badge);
    }
    if (marks.length !== this.overlay.childElementCount || marks.some((drawn, i) => drawn !== this.overlay.children[i])) fill(this.overlay, ...marks);
    const ranks = new Set(busy);
    for (const node of this.about.nodes) {
      const drawn = this.nodes.get(node.name);
      if (!drawn) continue;
      drawn.group.querySelector(".works")?.remove();
      const works = node.rank !== null && ranks.has(node.rank);
      drawn.group.classList.toggle("busy", works);
      if (works) drawn.group.append(svg("circle", { class: "works", cx: drawn.box.x + 9, cy: drawn.box.y + 9, r: 4 }));
    }
  }

  /** Kept, so that it keeps the keyboard's focus, too. */
  #badge(key, place) {
    const badge = svg("g");
    badge.append(svg("circle", { cx: place.x, cy: place.y, r: 8 }), svg("text", { x: place.x, y: place.y + 4 }, "!"));
    const [kind, name] = [key.slice(0, key.indexOf(" ")), key.slice(key.indexOf(" ") + 1)];
    this.#open(badge, kind, name);
    badge.setAttribute("aria-label", `faults of ${key}`);
    this.badges.set(key, badge);
    return badge;
  }

  choose(kind, name) {
    for (const chosen of this.svg.querySelectorAll(".chosen")) chosen.classList.remove("chosen");
    if (kind === "cable") this.cables.get(name)?.hit.classList.add("chosen");
    if (kind === "node") this.nodes.get(name)?.group.classList.add("chosen");
  }
}
