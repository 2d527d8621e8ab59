// A prompt: lines with history and completion, and what was answered.

import { ask, at, make } from "./dom.js";

const MOST_SHOWN = 400;

export class Terminal {
  /** `run(line)` carries a line out and says it here. */
  constructor(run) {
    this.run = run;
    this.history = [];
    this.place = 0;
    this.draft = "";
    at("type").addEventListener("submit", (event) => {
      event.preventDefault();
      const line = at("line").value.trim();
      if (!line) return;
      at("line").value = "";
      at("offers").textContent = "";
      this.remember(line);
      this.run(line);
    });
    at("line").addEventListener("keydown", (event) => this.#key(event));
    let low = true; // what was read last stays in sight when the room for it changes
    at("said").addEventListener("scroll", () => { low = at("said").scrollHeight - at("said").scrollTop - at("said").clientHeight < 30; });
    new ResizeObserver(() => { if (low) at("said").scrollTop = at("said").scrollHeight; }).observe(at("said"));
  }

  remember(line) {
    if (this.history.at(-1) !== line) this.history.push(line);
    this.place = this.history.length;
    this.draft = "";
  }

  say(time, line, text, ok) {
    const said = at("said");
    const shown = [make("p", { class: "typed" }, `${time}> ${line}`)];
    const words = /^(submit|give-up|hint|config|advance|until|ticket|status)\b/.test(line); // no table
    if (text) shown.push(make("pre", { class: ok ? (words ? "words" : null) : "bad" }, text));
    said.append(...shown);
    while (said.childElementCount > MOST_SHOWN) said.firstElementChild.remove();
    said.scrollTop = shown[0].offsetTop - said.offsetTop - 4;
    if (shown.at(-1).offsetTop + shown.at(-1).offsetHeight - shown[0].offsetTop < said.clientHeight) said.scrollTop = said.scrollHeight;
  }

  #key(event) {
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      if (this.place === this.history.length) this.draft = at("line").value;
      this.place = Math.max(0, Math.min(this.history.length, this.place + (event.key === "ArrowUp" ? -1 : 1)));
      at("line").value = this.history[this.place] ?? this.draft;
    } else if (event.key === "Tab" && !event.shiftKey && at("line").value) {
      event.preventDefault();
      this.#complete();
    } else if (event.key === "Escape") {
      at("offers").textContent = "";
      at("line").blur();
    }
  }

  async #complete() {
    const line = at("line").value;
    const offers = await ask("api/complete", { line }).catch(() => []);
    if (at("line").value !== line) return; // typed on
    const start = line.slice(0, line.length - (line.match(/\S*$/)?.[0].length ?? 0));
    if (offers.length === 1) at("line").value = `${start}${offers[0]}${/[@:]$/.test(offers[0]) ? "" : " "}`;
    else if (offers.length) at("line").value = start + common(offers);
    at("offers").textContent = offers.length > 1 ? offers.join("  ") : offers.length ? "" : "nothing fits here";
  }
}

function common(words) {
  let end = words[0].length;
  for (const word of words) while (!word.startsWith(words[0].slice(0, end))) end -= 1;
  return words[0].slice(0, end);
}
