// Elements and requests.  Text is always set as text: what comes from a fabric is never read as HTML.

export const at = (id) => document.getElementById(id);

/** An element with attributes and children; `on` has its handlers. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (key in element && typeof value === "boolean") element[key] = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export function svg(tag, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

/** New children for an element. Drawn anew under a pressed pointer they would swallow its click, so they wait for its release. */
export function fill(element, ...children) {
  waiting.delete(element);
  if (pressed && element.isConnected) waiting.set(element, children);
  else element.replaceChildren(...children);
}

let pressed = false;
const waiting = new Map(); // element -> its newest children
addEventListener("pointerdown", () => { pressed = true; }, true);
for (const [release, inside] of [["pointerup", true], ["pointercancel", true], ["blur", false]]) { // blur: the window's alone
  addEventListener(release, () => {
    pressed = false;
    setTimeout(() => { // behind the click, which comes with the release
      for (const [element, children] of pressed ? [] : waiting) fill(element, ...children);
    });
  }, inside);
}

/** Text in which `this` is code. */
export const marked = (text) => text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));

/** A row of buttons of which one is pressed; returns a function that presses another one. */
export function choice(element, options, chosen, told) {
  const buttons = new Map(options.map(([value, text, about]) => [value, make("button", { type: "button", title: about ?? null }, text)]));
  const press = (value) => {
    for (const [other, button] of buttons) button.setAttribute("aria-pressed", String(other === value));
  };
  for (const [value, button] of buttons) button.addEventListener("click", () => { press(value); told(value); });
  fill(element, ...buttons.values());
  press(chosen);
  return press;
}

/** An error that the server has said in words. */
export class Refused extends Error {
  constructor(error) {
    super([error.what, error.hint].filter(Boolean).join(" - "));
    this.error = error;
  }
}

export async function ask(path, parameters = {}, body = undefined) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) for (const one of [value].flat()) query.append(key, one);
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(`${path}?${query}`, options);
  if (answer.status === 403) throw new Refused({ what: (await answer.text()).trim() });
  const found = await answer.json();
  if (!answer.ok) throw new Refused(found.error);
  return found;
}
