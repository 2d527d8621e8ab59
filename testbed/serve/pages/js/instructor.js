// The instructor's page: it looks once a second at what the player does, and carries out the instructor's lines.

import { STEPS_ABOUT, StepChart } from "./chart.js";
import { ask, at, fill, make, marked } from "./dom.js";
import { microseconds, span } from "./format.js";

const LOOK_MS = 1000;
const MOST_SHOWN = 500;
let about, chart, since = 0, state = null, gone = false;

function notice(text) {
  at("notice").hidden = !text;
  at("notice").textContent = text;
}

function failed(error) {
  gone ||= /ended|gone/.test(error.message);
  notice(error instanceof TypeError ? "The server does not answer. What is shown is how it was last." : error.message);
}

/** Carries one of the instructor's lines out. */
async function order(line) {
  try {
    const told = await ask("api/command", {}, { line });
    at("answered").textContent = told.text;
    at("answered").className = told.ok ? "" : "bad";
    await look();
    return told.ok;
  } catch (error) {
    failed(error);
    return false;
  }
}

async function look() {
  const told = await ask("api/watch", { since });
  since = told.next;
  state = told.state;
  drawTruth(told.truth);
  drawState(told.truth);
  chart.show(state.steps, state.healthy_step_ns, told.did.map((one) => ({ time_ns: one.time_ns, line: one.line.replace(/^config /, "") })), state.time_ns);
  write(told.transcript);
}

function drawTruth(truth) {
  at("truth").textContent = truth.truth;
  const row = (fault, kind) => {
    const { fault: name, on, ...more } = fault;
    const rest = Object.entries(more).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${value}`).join(", ");
    return make("li", {}, make("b", {}, `${name} on ${on}`), ` ${rest}${kind}`);
  };
  fill(at("faults"), ...truth.faults.map((one) => row(one, "")), ...truth.benign.map((one) => row(one, " - a herring, not part of the truth")));
  at("way").hidden = !truth.evidence.length;
  fill(at("evidence"), ...truth.evidence.map((line) => make("li", {}, ...marked(line))));
  const next = truth.next_hint;
  at("next").disabled = !next || state.over;
  at("next-hint").textContent = next ? `next: ${next}` : "the drill has no further hint";
}

function drawState(truth) {
  const { budget } = about.ticket;
  const chip = (text, bad = false) => make("li", { class: bad ? "bad" : null }, text);
  at("time").textContent = microseconds(state.time_ns);
  at("held").textContent = state.over ? "the drill is over" : state.paused ? "you have paused it" : "the player moves the clock";
  at("about").textContent = `${truth.drill}, seed ${truth.seed}, fabric ${about.fabric}; sealed ${about.ticket.sealed.slice(0, 12)}`;
  fill(at("chips"),
    chip(`${span(state.budget_left_ns)} of ${span(budget.emulated_ns)} left`),
    chip(`${state.answers_left} ${state.answers_left === 1 ? "answer" : "answers"} left`),
    chip(`${state.hints_taken} hints taken or given`),
    ...(state.score ? [chip(`score ${state.score.total.toFixed(1)}`)] : []),
  );
  at("pause").setAttribute("aria-pressed", String(state.paused));
  at("pause").textContent = state.paused ? "Resume" : "Pause";
  for (const one of document.querySelectorAll(".orders button:not(#next), .orders input, .orders textarea, .orders select")) one.disabled = state.over;
  whole();
  at("chart-about").textContent = `${STEPS_ABOUT(span(state.healthy_step_ns))}; red: what the player or you have done`;
}

function write(rows) {
  const said = at("said");
  const atEnd = said.scrollTop + said.clientHeight > said.scrollHeight - 30;
  for (const row of rows) {
    said.append(make("p", { class: row.by ? "typed own" : "typed" }, `${row.by ? "you " : ""}${microseconds(row.time_ns)}> ${row.line}`));
    if (row.text) said.append(make("pre", { class: row.ok ? (row.by ? "words" : null) : "bad" }, row.text));
  }
  while (said.childElementCount > MOST_SHOWN) said.firstElementChild.remove();
  if (rows.length && atEnd) said.scrollTop = said.scrollHeight;
}

async function watch() {
  if (!gone && !document.hidden) await look().catch(failed);
  if (!gone) setTimeout(watch, LOOK_MS);
}

async function fork() {
  at("fork").disabled = true;
  at("answered").className = "";
  at("answered").textContent = "bringing the same world up once more ..";
  try {
    const told = await ask("api/fork", {}, {});
    at("answered").textContent = `the same world, up to now, is on fabric ${told.fabric}:\n  testbed drill join --fabric ${told.fabric}\n  testbed drill serve --web --fabric ${told.fabric}\nto instruct it, with the code ${told.code}:\n  testbed drill instruct --fabric ${told.fabric}`;
  } catch (error) {
    at("answered").className = "bad";
    at("answered").textContent = error.message;
  }
  at("fork").disabled = state.over;
}

/** What lacks something is not to be pressed. */
function whole() {
  at("put").disabled = state.over || !at("kind").value || !at("place").value.trim();
  for (const id of ["speak", "hint"]) at(id).disabled = state.over || !at("words").value.trim();
}

function describe() {
  const { about: what, where, sample } = about.classes[at("kind").value] ?? { about: "", where: "", sample: "" };
  at("kind-about").textContent = what && `${what}; where: ${where}`;
  at("more").placeholder = sample ? `such as ${sample}` : "for=100us every=1ms";
}

async function speak(word) {
  const text = at("words").value.trim().replace(/\s+/g, " ");
  if (text && (await order(`${word} ${text}`))) at("words").value = "";
  whole();
}

async function start() {
  about = await ask("api/about");
  document.title = `Instructor: ${about.ticket.title} - Railbed`;
  at("title").textContent = about.ticket.title;
  chart = new StepChart(at("chart"));
  fill(at("kind"), make("option", { value: "" }, "what ..?"), ...Object.keys(about.classes).map((name) => make("option", { value: name }, name)));
  at("kind").addEventListener("change", describe);
  document.querySelector(".orders").addEventListener("input", whole);
  fill(at("places"), ...about.places.map((place) => make("option", { value: place })));
  at("pause").addEventListener("click", () => order(state.paused ? "resume" : "pause"));
  at("fork").addEventListener("click", fork);
  at("say").addEventListener("submit", (event) => { event.preventDefault(); speak("say"); });
  at("hint").addEventListener("click", () => speak("hint"));
  at("next").addEventListener("click", () => order("hint"));
  at("inject").addEventListener("submit", (event) => {
    event.preventDefault();
    order(`inject ${at("kind").value}@${at("place").value.trim()} ${at("more").value.trim()}`.trim());
  });
  await watch();
}

start().catch(failed);
