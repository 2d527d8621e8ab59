// A student's page of a drill: all that it shows and does goes through lines that one could type.

import { Answer } from "./answer.js";
import { STEPS_ABOUT, StepChart } from "./chart.js";
import { ask, at, choice, fill, make, Refused } from "./dom.js";
import { change, microseconds, span } from "./format.js";
import { levels, Port, STUDENTS } from "./metrics.js";
import { Network } from "./network.js";
import { Tables } from "./tables.js";
import { Terminal } from "./terminal.js";

const LOOK_MS = 2000;
const VIEW = "show interfaces counters";
const PARTS = { speed: "how soon", damage: "harm done", wrong: "wrong answers" };
let about, network, tables, terminal, answer, chart, pressSince;
let state = null, figures = null, last = null, mark = null;
let metric = STUDENTS[0], since = "last", chosen = null, busy = false, ended = false, acted = [];
let shown = null; // the view in the tables

const port = (name) => {
  const row = figures?.ports[name];
  if (!row) return null;
  const base = since === "last" ? last : since === "mark" ? mark : null; // before the first stop: all
  return new Port(about.columns, row, base?.ports[name] ?? null, figures.time_ns - (base?.time_ns ?? 0));
};

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text;
}

function failed(error) {
  ended ||= error instanceof Refused && /ended|gone|down/.test(error.message);
  notice(error instanceof TypeError ? "The server does not answer. What is shown is how it was last." : error.message);
}

// -- lines

const answers = (line) => line.startsWith("submit ") || line === "give-up";

/** Carries a line out as if it was typed, shows what has come, and what has changed by it. */
async function run(line) {
  if (busy) return;
  busy = true;
  working(true);
  const began = state.time_ns;
  if (answers(line)) answer.say("at work: if that ends it, the same world is played again without you ..");
  try {
    const told = await ask("api/command", {}, { line });
    terminal.say(microseconds(began), line, told.text, told.ok);
    if (answers(line)) answer.say(told.text);
    if (told.ok && line.startsWith("config ")) acted.push({ time_ns: began, line: line.slice(7) });
    if (told.ok && told.data?.hint) at("hints").append(make("li", {}, told.data.hint));
    await refresh();
    if (told.ok && line.startsWith("show ") && told.data) showTables(line, told);
  } catch (error) {
    failed(error);
  } finally {
    busy = false;
    working(false);
  }
}

function working(on) {
  at("stop").hidden = !on;
  for (const button of document.querySelectorAll(".moves button:not(#stop), #views, #line")) button.disabled = on || (state?.over && button.id !== "line" && button.id !== "views");
  at("held").textContent = on ? "at work .." : state?.paused && !state.over ? "the instructor has paused the drill" : state?.over ? "the drill is over" : "the clock stands still";
  if (!on && document.activeElement === document.body) at("line").focus({ preventScroll: true });
}

async function refresh() {
  const before = state?.time_ns;
  state = await ask("api/state");
  if (!figures || before !== state.time_ns) {
    const next = await ask("api/figures");
    if (figures && next.time_ns !== figures.time_ns) last = figures;
    figures = next;
    if (!mark) mark = figures;
  }
  await draw();
}

// -- what is drawn

async function draw() {
  at("time").textContent = microseconds(state.time_ns);
  const { budget } = about.ticket;
  const chip = (text, bad = false) => make("li", { class: bad ? "bad" : null }, text);
  fill(at("chips"),
    chip(`${span(state.budget_left_ns)} of ${span(budget.emulated_ns)} left`, state.budget_left_ns < budget.emulated_ns / 10),
    chip(`${state.answers_left} ${state.answers_left === 1 ? "answer" : "answers"} left`, state.answers_left < 2 && !state.over),
    chip(`${state.hints_taken} hints taken, ${state.hints_left} left`),
    ...(state.steps.length ? [chip(`last step ${span(state.steps.at(-1).step_ns)}, at first ${span(state.healthy_step_ns)}`)] : []),
    ...(stands() ? [chip(`no step has ended for ${span(stands())}`, true)] : []),
  );
  at("prompt").textContent = `${microseconds(state.time_ns)}>`;
  fill(at("messages"), ...state.messages.map((one) => make("li", { class: "message" }, one.text)));
  if (!busy) working(false);
  at("hint").disabled = !state.hints_left || state.over;
  at("hint").title = "Each costs points";
  drawMap();
  drawChart();
  drawWhen();
  if (state.over) await drawEnd();
}

/** For how long no step has ended, if that is longer than a step takes; 0 else. */
function stands() {
  const last = state.steps.at(-1);
  const since = last && !state.over ? state.time_ns - last.start_ns - last.step_ns : 0;
  return since > 1.5 * Math.max(...state.steps.slice(-5).map((step) => step.step_ns)) ? since : 0;
}

function drawMap() {
  network.paint(metric, port);
  network.mark([], [], () => null);
  const base = (since === "last" ? last : since === "mark" ? mark : null) ?? { time_ns: 0 };
  const passed = figures.time_ns - base.time_ns;
  const first = figures.time_ns === state.began_ns ? ", as the clock has not gone on yet" : ""; // else: opened on the way
  const from = { last: last ? "since the clock last stood" : `since the beginning${first}`, mark: "since the mark", all: "since the beginning" }[since];
  at("period").textContent = passed > 0 ? `${from}: ${span(passed)}, to ${microseconds(figures.time_ns)}` : `${from}: no time has passed`;
  drawPicked();
}

function drawLegend() {
  fill(at("legend"),
    ...levels(metric).map(([name, text]) => make("span", {}, make("i", { class: name }), text)),
    make("span", {}, make("i", { class: "down" }), "down"));
  at("legend").title = `${metric.label}: ${metric.about}, in each half of a cable those of the port at that end`;
}

function drawChart() {
  chart.show(state.steps, state.healthy_step_ns, acted, state.time_ns);
  at("chart-about").textContent = `${STEPS_ABOUT(span(state.healthy_step_ns))}${acted.length ? "; red: what you have configured" : ""}`;
}

/** What was configured before this page was opened, or elsewhere. */
async function recall() {
  const done = await ask("api/actions");
  acted = done.filter((row) => row.ok && row.line.startsWith("config ")).map((row) => ({ time_ns: nanoseconds(row.time), line: row.line.slice(7) }));
}

/** What stood in the terminal before the page was opened anew. */
async function again() {
  for (const { time_ns, line, text, ok } of await ask("api/transcript")) {
    terminal.remember(line);
    terminal.say(microseconds(time_ns), line, text, ok);
    if (ok && line.trim() === "hint") at("hints").append(make("li", {}, text));
  }
}

/** `700us` as the drill writes it. */
function nanoseconds(text) {
  const [, number, unit] = /^([\d.]+)\s*(ns|us|ms|s)$/.exec(text) ?? [];
  return number ? Number(number) * { ns: 1, us: 1e3, ms: 1e6, s: 1e9 }[unit] : 0;
}

function drawPicked() {
  at("picked").hidden = !chosen;
  if (!chosen) return;
  const cable = chosen.kind === "cable" ? network.cables.get(chosen.name) : null;
  const node = about.nodes.find((one) => one.name === chosen.name);
  const place = cable ? `cable:${cable.name}` : node.rank === null ? `switch:${node.name}` : `nic:${node.rank}`;
  const ends = cable ? cable.ends : [];
  const texts = ends.map((end) => {
    const figure = port(end);
    if (figure && !figure.now("up")) return `${end}: down`;
    const seen = STUDENTS.filter((m) => figure && figure.grown(about.columns[STUDENTS.indexOf(m) + 1]));
    return `${end}: ${seen.map((m) => `${m.label.toLowerCase()} ${change(m.of(figure))}`).join(", ") || "nothing new"}`;
  });
  const name = make("button", { type: "button" }, `answer: ${place}`);
  name.addEventListener("click", () => answer.place(place));
  const words = cable ? ends : [chosen.name];
  const look = make("button", { type: "button" }, "its counters");
  look.addEventListener("click", () => { tables.filter = at("filter").value = words.join("|"); view(); });
  fill(at("picked"), make("b", {}, chosen.name), ...texts.map((text) => make("span", { class: "soft" }, text)), ...(cable ? [] : [make("span", { class: "soft" }, node.about)]), look, ...(ended || state.over ? [] : [name]));
}

function showTables(line, told) {
  tables.show(Object.entries(told.data).filter(([, rows]) => Array.isArray(rows)).map(([name, rows]) => ({ name: `${line} ${name}`, title: Object.keys(told.data).length > 1 ? name : "", rows, named: ["MTU", "rank", "qp", "peer", "peer_qp"] })));
  shown = { line, time_ns: told.time_ns };
  const words = [...at("views").options].map((one) => one.value).filter((one) => `${line} `.startsWith(`${one} `));
  if (words.length) { // what is chosen says what is shown, also of a line that was typed
    at("views").value = words.sort((a, b) => a.length - b.length).at(-1);
    at("options").value = line.slice(at("views").value.length).trim();
    offerOptions();
  }
  drawWhen();
}

/** When the table was looked at; it stays as it was then. */
function drawWhen() {
  if (!shown) return;
  const gone = state.time_ns !== shown.time_ns;
  const again = make("button", { type: "button", on: { click: () => run(shown.line) } }, "look again");
  fill(at("when"), `${shown.line}, at ${microseconds(shown.time_ns)}${gone ? ": the clock has gone on since " : ""}`, ...(gone ? [again] : []));
}

async function drawEnd() {
  if (ended) return;
  ended = true;
  answer.end();
  const { total, ...parts } = state.score;
  const report = await ask("api/report");
  const rows = Object.entries(parts).filter(([, value]) => value !== null).map(([name, value]) => make("tr", {}, make("td", { class: "text" }, PARTS[name] ?? name), make("td", {}, ["hints", "damage", "wrong"].includes(name) ? (value ? `-${value.toFixed(1)}` : "0") : value.toFixed(2))));
  fill(at("score"), make("h3", {}, "Score"), make("p", { class: "total" }, total.toFixed(1)), make("table", {}, make("tbody", {}, ...rows)), make("h3", {}, "Report"), make("pre", { id: "report" }, report));
}

// -- what is done

function choose(kind, name) {
  chosen = chosen?.name === name ? null : { kind, name };
  network.choose(chosen?.kind, chosen?.name);
  drawPicked();
}

function hover(place, event) {
  const tip = at("tip");
  tip.hidden = !place || !figures;
  if (tip.hidden) return;
  const cable = network.cables.get(place.name);
  const lines = place.kind === "cable" ? cable.ends.map((end) => `${end}: ${port(end).now("up") ? "" : "down, "}${metric.label.toLowerCase()} ${metric.text(metric.of(port(end)))}`) : [network.nodes.get(place.name).about];
  tip.textContent = [place.name, ...lines].join("\n");
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}

function view() {
  const line = `${at("views").value} ${at("options").value}`.trim();
  terminal.remember(line);
  run(line);
}

const shows = () => about.commands.filter((usage) => usage.startsWith("show "));
const wordsOf = (usage) => usage.split(" ").filter((word) => /^[a-z]/.test(word)).join(" ");

function offerOptions() {
  const usage = shows().find((one) => wordsOf(one) === at("views").value) ?? "";
  at("options").placeholder = usage.slice(wordsOf(usage).length).trim();
}

function offerViews() {
  fill(at("views"), ...shows().map((usage) => make("option", { value: wordsOf(usage) }, wordsOf(usage).slice(5))));
  if (shows().some((usage) => wordsOf(usage) === VIEW)) at("views").value = VIEW;
  at("views").addEventListener("change", () => { at("options").value = ""; offerOptions(); view(); });
  at("options").addEventListener("keydown", (event) => { if (event.key === "Enter") view(); });
  at("filter").addEventListener("input", () => { tables.filter = at("filter").value; tables.draw(); });
  at("nonzero").addEventListener("change", () => { tables.nonzero = at("nonzero").checked; tables.draw(); });
  offerOptions();
}

async function look() {
  if (!busy && !ended && !document.hidden) {
    try {
      const now = await ask("api/state");
      if (!busy && (now.time_ns !== state.time_ns || now.over !== state.over || now.hints_taken !== state.hints_taken || now.messages.length !== state.messages.length || now.paused !== state.paused)) {
        await recall();
        await refresh();
      }
    } catch (error) {
      failed(error);
    }
  }
  setTimeout(look, LOOK_MS);
}

async function start() {
  about = await ask("api/about");
  const { ticket } = about;
  document.title = `${ticket.title} - Railbed`;
  at("title").textContent = ticket.title;
  at("about").textContent = `${ticket.world}`;
  at("case").textContent = `drill ${ticket.drill}, ${ticket.level}${ticket.seed ? `, seed ${ticket.seed}` : ""}; sealed ${ticket.sealed.slice(0, 12)}`;
  at("text").textContent = ticket.text || ticket.title;
  at("asked").textContent = ticket.asked;
  network = new Network(at("drawing"), about, { chosen: choose, hover });
  tables = new Tables(at("tables"));
  terminal = new Terminal(run);
  answer = new Answer(about, run);
  chart = new StepChart(at("chart"));
  choice(at("metrics"), STUDENTS.map((m) => [m.name, m.label, m.about]), metric.name, (name) => { metric = STUDENTS.find((m) => m.name === name); drawLegend(); drawMap(); });
  pressSince = choice(at("since"), [["last", "last stop"], ["mark", "mark"], ["all", "all"]], since, (value) => { since = value; drawMap(); });
  at("mark").addEventListener("click", () => { mark = figures; since = "mark"; pressSince(since); drawMap(); });
  at("zoom").addEventListener("click", () => at("zoom").setAttribute("aria-pressed", String(at("drawing").classList.toggle("large"))));
  for (const button of document.querySelectorAll("[data-line]")) button.addEventListener("click", () => run(button.dataset.line));
  at("stop").addEventListener("click", () => ask("api/interrupt", {}, {}).catch(failed));
  at("hint").addEventListener("click", () => run("hint"));
  at("until").addEventListener("submit", (event) => { event.preventDefault(); run(`until ${at("condition").value}`); });
  offerViews();
  drawLegend();
  await recall();
  await again();
  await refresh();
  showTables(VIEW, { data: figures.counters, time_ns: figures.time_ns });
  look();
}

start().catch(failed);
