// A held clock: buttons that let it go on, and the time of each step of its job.

import { StepChart } from "./chart.js";
import { ask, at } from "./dom.js";
import { span } from "./format.js";

export class Held {
  /** `stopped` is called when the clock stands again, `failed` with what went wrong; `now` tells the time. */
  constructor(stopped, failed, now) {
    this.now = now;
    this.stopped = stopped;
    this.failed = failed;
    this.steps = [];
    this.going = false;
    this.looking = false;
    this.asked = new Set(); // what only a standing clock can tell, and is not answered yet
    at("held").hidden = false;
    this.chart = new StepChart(at("chart"));
    for (const button of at("held").querySelectorAll("[data-line]")) button.addEventListener("click", () => this.go(button.dataset.line));
    at("until").addEventListener("submit", (event) => { event.preventDefault(); this.go(`until ${at("condition").value}`); });
  }

  /** An answer that only a standing clock can give: the clock does not go on before it is here. */
  still(answer) {
    const done = () => this.asked.delete(answer);
    this.asked.add(answer);
    answer.then(done, done);
    return answer;
  }

  async go(line) {
    if (this.going) return;
    this.#set(true);
    try {
      await Promise.allSettled(this.asked);
      const told = await ask("api/advance", {}, { line });
      const lost = Object.entries(told.errors).map(([rank, why]) => `; the worker of rank ${rank} has given up: ${why}`);
      at("went").textContent = `${told.met ? "" : `not within ${told.limit}; `}${told.steps} ${told.steps === 1 ? "step has" : "steps have"} ended${lost.join("")}`;
    } catch (error) {
      at("went").textContent = error.message;
    } finally {
      this.#set(false);
    }
    await this.look();
    this.stopped();
  }

  #set(going) {
    this.going = going;
    if (going) at("went").textContent = "at work ..";
    for (const button of at("held").querySelectorAll("button")) button.disabled = going;
  }

  /** The steps that have ended since. */
  async look() {
    if (this.going || this.looking) return;
    this.looking = true;
    try {
      this.steps.push(...(await this.still(ask("api/steps", { from: this.steps.length }))));
      const best = Math.min(...this.steps.map((step) => step.step_ns));
      at("chart").hidden = !this.steps.length;
      at("chart-about").textContent = this.steps.length ? "time of each step of the job, at its end; dashed: the best one" : "no step of the job has ended yet: let time pass";
      this.chart.show(this.steps, this.steps.length ? best : null, [], this.now());
      const last = this.steps.at(-1);
      if (last && !at("went").textContent) at("went").textContent = `${this.steps.length} steps have ended; the last took ${span(last.step_ns)}`;
    } catch (error) {
      this.failed(error);
    } finally {
      this.looking = false;
    }
  }
}
