"use strict";
/* Two live groups side by side, and keys that disturb both.

   In: the state of the lab, one stream of events for each group. Out: requests to disturb them.
   Texts are set as text, never as HTML. */

const KEYS = { k: "kill", s: "stall", p: "pause", c: "coordinator" };
const STATE_MS = 500, SEEN_MS = 120000;
const find = (selector) => document.querySelector(selector);
const sides = new Map();
let newest = "";

class Side {
  constructor(root, { group, policy }) {
    this.root = made(root, "section");
    this.title = made(this.root, "h2", "", `${group}: ${policy}`);
    this.numbers = made(this.root, "dl", "numbers");
    this.members = made(this.root, "p", "known");
    this.host = made(this.root, "div", "timeline");
    this.timeline = null;
    const stream = new EventSource(`/events?${new URLSearchParams({ group })}`);
    stream.addEventListener("group", (event) => this.take(JSON.parse(event.data).picture));
  }

  take(picture) {
    if (this.timeline) this.timeline.take(picture);
    else {
      this.timeline = new Timeline(this.host, picture, () => {});
      this.timeline.view = { follows: true, length: SEEN_MS };
    }
  }

  show({ numbers, states }) {
    this.numbers.replaceChildren();
    for (const [name, text] of numbers) {
      const box = made(this.numbers, "div");
      made(box, "dt", "", name);
      made(box, "dd", "", text);
    }
    this.members.textContent = Object.entries(states)
      .map(([name, state]) => `${name} ${state}`).join(", ");
  }
}

async function look() {
  try {
    const answer = await fetch("/lab/state"), values = await answer.json();
    find("#connection").hidden = true;
    find("#bootstrap").textContent = values.bootstrap;
    const choice = find("#member");
    if (!choice.options.length) {
      choice.append(...Object.keys(values.sides[0].states).map((name) => new Option(name, name)));
    }
    for (const side of values.sides) {
      if (!sides.has(side.group)) sides.set(side.group, new Side(find("#sides"), side));
      sides.get(side.group).show(side);
    }
    if (values.log[0] !== newest) find("#refused").textContent = "";  // it may be possible now
    newest = values.log[0];
    find("#log").replaceChildren();
    for (const text of values.log) made(find("#log"), "div", "known", text);
  } catch {
    find("#connection").hidden = false;
  }
  setTimeout(look, STATE_MS);
}

async function act(what) {
  const body = JSON.stringify({ act: what, member: find("#member").value });
  const headers = { "content-type": "application/json" };
  try {
    const answer = await fetch("/lab/act", { method: "POST", headers, body });
    find("#refused").textContent = answer.ok ? "" : await answer.text();
  } catch {
    find("#connection").hidden = false;
  }
}

for (const button of document.querySelectorAll("[data-act]")) {
  button.addEventListener("click", () => act(button.dataset.act));
}
addEventListener("keydown", (event) => {
  const what = KEYS[event.key.toLowerCase()];
  if (!what || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.closest("input, select")) return;
  act(what);
});
look();
