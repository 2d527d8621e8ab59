// The live view: frames come as server-sent events, everything else is asked for when it is looked at.

import { ask, at, choice, fill, make, Refused } from "./dom.js";
import { counters, faultsOf, most } from "./details.js";
import { bytes, counted, microseconds, rate, span } from "./format.js";
import { Held } from "./held.js";
import { levels, METRICS, metricsOf, Port } from "./metrics.js";
import { Network } from "./network.js";
import { Tables } from "./tables.js";

const LOGS = "logs";
const options = new Map(); // view -> what stands behind its words
const page = crypto.randomUUID();
let about, network, tables, held = null;
let frame = null, before = null, mark = null; // {time_ns, ports}
let metric = METRICS[0], since = "last", view = "", chosen = null, logFile = "";

const port = (name) => {
  const row = frame?.ports[name];
  if (!row) return null;
  const base = since === "last" ? before : since === "mark" ? mark : null;
  if (since === "last" && !base) return new Port(about.columns, row, row, 0); // nothing has passed since we look
  return new Port(about.columns, row, base?.ports[name] ?? null, frame.time_ns - (base?.time_ns ?? 0));
};

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text;
}

// -- what is drawn

function drawHeader() {
  at("time").textContent = microseconds(frame.time_ns);
  at("moves").textContent = `${about.clock_text} clock${about.clock !== "virtual" ? "" : frame.moves ? ", running" : about.held ? ", held: it stands still until you let it go on" : "; stands still until a workload runs"}`;
  const { verdict, reasons } = frame.fidelity;
  const chip = (text, bad = false, title = null) => make("li", { class: bad ? "bad" : null, title }, text);
  const job = frame.job ? `job ${frame.job.job}: ${frame.job.name}, ${frame.job.runs}${frame.job.of === null ? "" : ` of ${frame.job.of}`} runs done` : about.held ? "job repeated for ever" : "no job";
  fill(at("chips"),
    chip(`fidelity ${verdict}`, !["exact", "good"].includes(verdict), reasons.join("\n")),
    chip(`controller ${frame.controller}`, frame.controller !== "runs"),
    chip(job),
    ...(frame.faults.length ? frame.faults.map((f) => chip(`fault ${f.id}: ${f.fault} on ${f.on}, ${f.state}, ${counted(f.hits, "hit")}`, f.state === "on")) : [chip("no faults")]),
    ...(frame.deadlocks ? [chip(`${counted(frame.deadlocks, "deadlock")}`, true)] : []),
  );
}

function drawMap() {
  network.paint(metric, port);
  network.mark(frame.faults, frame.busy, port);
  const base = since === "last" ? before : since === "mark" ? mark : { time_ns: 0 };
  const passed = base ? frame.time_ns - base.time_ns : 0;
  const from = { last: "the last period that passed", mark: "since the mark", up: "since the fabric came up" }[since];
  at("period").textContent = metric.name === "queue" ? (held ? "the most since the job began" : "as it is now") : passed > 0 ? `${from}: ${span(passed)}, to ${microseconds(frame.time_ns)}` : `${from}: no time has passed`;
}

function drawLegend() {
  fill(at("legend"),
    ...levels(metric).map(([name, text]) => make("span", {}, make("i", { class: name }), text)),
    make("span", {}, make("i", { class: "down" }), "down"),
    make("span", {}, make("b", {}, "\u2016"), "paused now"),
    make("span", {}, make("b", {}, "!"), "fault"),
  );
  at("legend").title = `${metric.label}: ${metric.about}. Each half of a cable is what the port at its end sends.`;
}

async function drawDetails() {
  if (!chosen) {
    at("details-title").textContent = `Most ${metric.label.toLowerCase()}`;
    most(at("details"), metric, about.cables, port, choose);
    return;
  }
  const { kind, name } = chosen;
  const cable = kind === "cable" ? network.cables.get(name) ?? about.cables.find((c) => c.name === name) : null;
  const of = cable ? cable.ends : [name, ...portsOf(name)];
  const found = await ask("api/ports", { of, since, page });
  if (chosen?.name !== name) return; // another one has been clicked
  at("details-title").textContent = cable ? `cable ${name}` : name;
  const places = of.map((one) => found.places.find((place) => place.name === one)).filter(Boolean);
  fill(at("details"),
    make("p", {}, make("button", { type: "button", class: "link", on: { click: () => choose(null) } }, "back to all")),
    ...(cable ? cable.ends.map(describe) : [make("p", { class: "soft" }, about.nodes.find((n) => n.name === name)?.about ?? "")]),
    ...faultsOf(frame.faults, kind, name),
    counters(places, "nothing has been counted here", since !== "up"),
    make("p", { class: "soft small" }, since === "up" ? "all, since the fabric came up" : `change: since ${microseconds(found.since_ns)}`),
  );
}

const portsOf = (node) => Object.keys(frame.ports).filter((name) => name.slice(0, name.lastIndexOf(":")) === node);

function describe(end) {
  const figures = port(end);
  if (!figures) return "";
  const state = figures.now("up") ? rate(figures.now("rate_bps")) : "down";
  return make("p", { class: "soft small" }, `${end}: ${state}, sends ${rate(figures.sent())} (${METRICS[0].text(figures.load())}), queue ${bytes(figures.now("queue_bytes"))}, at most ${bytes(figures.now("queue_max_bytes"))}${figures.now("paused") ? ", paused" : ""}`);
}

let asking = false, again = false;
async function drawTables() {
  if (held?.going) return; // when the clock stands, they are drawn
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    if (view === LOGS) await drawLogs();
    else {
      const asked = view;
      const answer = ask("api/view", { view: `${view} ${options.get(view) ?? ""}`, since, page });
      const found = await (held ? held.still(answer) : answer);
      if (asked === view) tables.show(found.tables);
    }
  } catch (error) {
    if (error instanceof Refused) fill(at("tables"), make("p", { class: "bad" }, error.message));
    else failed(error);
  } finally {
    asking = false;
    if (again) {
      again = false;
      drawTables();
    }
  }
}

function drawOptions() {
  const { usage = "", about: help = "" } = about.views.find((v) => v.words === view) ?? {};
  at("options-field").hidden = !usage;
  at("options").placeholder = usage;
  at("options").title = `${help} ${usage}`;
  at("options").value = options.get(view) ?? "";
}

async function drawLogs() {
  const files = await ask("api/logs");
  if (!files.includes(logFile)) logFile = files[0] ?? "";
  const lines = logFile ? await ask("api/log", { file: logFile }) : [];
  const shown = lines.filter((line) => line.toLowerCase().includes(tables.filter.toLowerCase()));
  if (view !== LOGS) return;
  const choose = make("div", { class: "choice bar" });
  choice(choose, files.map((file) => [file, file]), logFile, (file) => { logFile = file; drawTables(); });
  fill(at("tables"), choose, shown.length ? make("pre", { class: "scroll" }, shown.join("\n")) : make("p", { class: "soft" }, lines.length ? "no line fits" : "nothing has been written"));
  at("tables").querySelector("pre")?.scrollTo(0, 1e9);
}

function draw() {
  drawHeader();
  drawMap();
  drawDetails().catch(failed);
}

// -- what is done

function choose(kind, name) {
  chosen = kind ? { kind, name } : null;
  network.choose(kind, name);
  if (frame) drawDetails().catch(failed);
}

function hover(place, event) {
  const tip = at("tip");
  tip.hidden = !place || !frame;
  if (tip.hidden) return;
  const lines = [];
  if (place.kind === "cable") {
    const cable = network.cables.get(place.name);
    for (const [i, end] of cable.ends.entries()) {
      const figures = port(end);
      if (figures) lines.push(`${end} to ${cable.ends[1 - i]}: ${metric.text(metric.of(figures))}${metric.name === "load" ? `, ${rate(figures.sent())}` : ""}${figures.now("paused") ? ", paused now" : ""}`);
    }
  } else lines.push(network.nodes.get(place.name).about);
  const faults = frame.faults.filter((f) => (place.kind === "cable" ? f.cables : f.nodes).includes(place.name));
  tip.textContent = [place.name, ...lines, ...faults.map((f) => `fault ${f.id}: ${f.fault}, ${f.state}`)].join("\n");
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}

function failed(error) {
  if (at("notice").hidden) notice(`The page could not be filled: ${error.message}`);
}

let gone = false;
function listen() {
  const events = new EventSource("api/events");
  events.addEventListener("frame", (event) => {
    const next = JSON.parse(event.data);
    const moved = !frame || next.time_ns !== frame.time_ns;
    if (frame && moved) before = frame;
    frame = next;
    notice(frame.trouble);
    draw();
    if (held?.going) return; // tables and steps follow when the clock stands
    if (moved || view === LOGS) drawTables();
    if (moved) held?.look();
  });
  events.addEventListener("gone", (event) => {
    gone = true;
    events.close();
    notice(`${JSON.parse(event.data)}. What is shown is how it was last.`);
  });
  events.addEventListener("error", () => {
    if (!gone) notice("The server does not answer; trying again. What is shown is how it was last.");
  });
}

async function start() {
  about = await ask("api/about");
  before = about.before;
  document.title = `${about.name} - Railbed`;
  at("name").textContent = about.name;
  at("about").textContent = `fabric ${about.id}: ${about.topology}, ${about.ranks} ranks, ${about.clock_text} clock`;
  tables = new Tables(at("tables"));
  network = new Network(at("drawing"), about, { chosen: choose, hover });
  mark = await ask("api/mark", { page }, {});
  const metrics = metricsOf(about.held);
  choice(at("metrics"), metrics.map((m) => [m.name, m.label, m.about]), metric.name, (name) => {
    metric = metrics.find((m) => m.name === name);
    drawLegend();
    if (frame) draw();
  });
  const pressSince = choice(at("since"), [["last", "last period"], ["mark", "since mark"], ["up", "all"]], since, (value) => {
    since = value;
    if (frame) draw();
    drawTables();
  });
  at("mark").addEventListener("click", async () => {
    mark = await ask("api/mark", { page }, {});
    since = "mark";
    pressSince(since);
    draw();
    drawTables();
  });
  at("zoom").addEventListener("click", () => at("zoom").setAttribute("aria-pressed", String(at("drawing").classList.toggle("large"))));
  view = (about.views.find((v) => v.words === "interfaces counters") ?? about.views[0]).words;
  fill(at("views"), ...[...about.views, { words: LOGS, about: "What the fabric's parts have written." }].map((v) => make("option", { value: v.words, title: v.about }, v.words)));
  at("views").value = view;
  at("views").addEventListener("change", () => { view = at("views").value; drawOptions(); drawTables(); });
  at("options").addEventListener("change", () => { options.set(view, at("options").value); drawTables(); });
  drawOptions();
  at("filter").addEventListener("input", () => { tables.filter = at("filter").value; view === LOGS ? drawTables() : tables.draw(); });
  at("nonzero").addEventListener("change", () => { tables.nonzero = at("nonzero").checked; tables.draw(); });
  if (about.held) held = new Held(() => drawTables(), failed, () => frame?.time_ns ?? 0);
  drawLegend();
  drawTables();
  listen();
}

start().catch((error) => notice(`The page could not be filled: ${error.message}`));
