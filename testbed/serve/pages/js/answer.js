// The answer sheet: healthy, or causes with their classes and places; it becomes the line `submit ..`.

import { at, fill, make } from "./dom.js";

export class Answer {
  /** `run(line)` carries a line out. */
  constructor(about, run) {
    this.about = about;
    this.run = run;
    this.sure = "";
    at("another").addEventListener("click", () => this.#add().querySelector("select").focus());
    at("answer").addEventListener("input", () => this.#changed());
    at("answer").addEventListener("submit", (event) => { event.preventDefault(); this.#press(this.line()); });
    at("give-up").addEventListener("click", () => this.#press("give-up"));
    this.#add();
    this.#changed();
  }

  line() {
    if (this.#healthy()) return "submit healthy";
    const causes = [...at("causes").children].map((row) => [row.querySelector("select").value, row.querySelector("input").value.trim()]);
    const whole = causes.filter(([kind, place]) => kind && place);
    return whole.length ? `submit ${whole.map(([kind, place]) => `${kind}@${place}`).join(" ")}` : "";
  }

  /** A place that was picked in the drawing goes where one is missing, else to the last cause. */
  place(text) {
    const inputs = [...at("causes").querySelectorAll("input")];
    const input = inputs.find((one) => !one.value) ?? inputs.at(-1);
    document.querySelector('[name="verdict"][value="wrong"]').checked = true;
    input.value = text;
    this.#changed();
  }

  /** What came of it. */
  say(text) {
    at("verdict").textContent = text.split("\n")[0];
  }

  end() {
    at("verdict").textContent = "";
    for (const one of at("answer").querySelectorAll("input, select, button")) one.disabled = true;
    at("line-of-answer").textContent = "";
  }

  #healthy() {
    return document.querySelector('[name="verdict"]:checked').value === "healthy";
  }

  #add() {
    const options = this.about.classes.map((one) => make("option", { value: one.class }, one.class));
    const help = make("p", { class: "soft small" });
    const select = make("select", { "aria-label": "Class" }, make("option", { value: "" }, "what ..?"), ...options);
    const input = make("input", { "aria-label": "Place", placeholder: "where, such as cable:A-B", list: "places", autocomplete: "off", spellcheck: "false" });
    const row = make("div", { class: "cause" }, select, input, make("button", { type: "button", title: "Remove", "aria-label": "Remove this cause" }, "\u00d7"), help);
    row.querySelector("button").addEventListener("click", () => {
      if (at("causes").childElementCount > 1) row.remove();
      else { select.value = ""; input.value = ""; }
      this.#changed();
    });
    const offer = () => {
      const chosen = this.about.classes.find((one) => one.class === select.value);
      help.textContent = chosen ? `${chosen["what it is"]}; where: ${chosen.where.split(" ").join(", ")}` : "";
      fill(at("places"), ...this.#places(chosen?.where.split(" ")).map((place) => make("option", { value: place })));
    };
    select.addEventListener("change", offer);
    input.addEventListener("focus", offer);
    at("causes").append(row);
    return row;
  }

  #places(kinds = ["cable", "switch", "port", "nic"]) {
    const { cables, nodes, switch_ports: ports } = this.about;
    const of = {
      cable: () => cables.map((c) => `cable:${c.name}`),
      switch: () => nodes.filter((n) => n.rank === null).map((n) => `switch:${n.name}`),
      port: () => ports.map((p) => `port:${p}`),
      nic: () => nodes.filter((n) => n.rank !== null).map((n) => `nic:${n.rank}`),
      controller: () => ["controller"],
      all: () => ["all"],
    };
    return kinds.flatMap((kind) => of[kind]?.() ?? []);
  }

  #changed() {
    this.sure = "";
    at("verdict").textContent = "";
    at("submit").textContent = "Submit";
    at("give-up").textContent = "Give up";
    for (const one of at("causes").querySelectorAll("input, select")) one.disabled = this.#healthy();
    const line = this.line();
    at("submit").disabled = !line;
    at("line-of-answer").textContent = line || "name at least one cause with its class and its place";
  }

  /** The second press counts. */
  #press(line) {
    if (this.sure === line) {
      this.#changed();
      this.run(line);
      return;
    }
    this.#changed();
    this.sure = line;
    at(line === "give-up" ? "give-up" : "submit").textContent = line === "give-up" ? "Really give up?" : "It counts: press again";
  }
}
