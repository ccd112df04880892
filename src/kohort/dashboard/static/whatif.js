"use strict";
/* What-if of a group: a form of changes, the progress of the runs, the costs side by side.

   In: the choices of the server, events "what-if" of its stream. Out: requests to begin and to end a
   comparison. Texts are set as text, never as HTML. */

class WhatIf {
  constructor(root, group) {
    this.root = root;
    this.group = group;
    this.most = 1;
    this.find("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask("POST", this.wanted());
    });
    this.find("#add").addEventListener("click", () => this.add());
    this.find("#cancel").addEventListener("click", () => this.ask("DELETE"));
    fetch("/what-if").then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)))
      .then((choices) => this.choose(choices), () => { root.hidden = true; });
  }

  find(selector) {
    return this.root.querySelector(selector);
  }

  choose(choices) {
    this.policies = [["", "the policy in force"], ...choices.policies];
    this.most = choices.most;
    this.find("#settings").replaceChildren(...choices.settings.map((name) => {
      const made = document.createElement("option");
      made.value = `${name}=`;
      return made;
    }));
    this.add();
  }

  /** A row for one more change. */
  add() {
    const rows = this.find("#changes"), row = document.createElement("div");
    const policy = document.createElement("select"), settings = document.createElement("input");
    const gone = document.createElement("button");
    policy.setAttribute("aria-label", "policy");
    policy.append(...this.policies.map(([name, title]) => new Option(name ? `${name}: ${title}` : title, name)));
    settings.setAttribute("aria-label", "settings");
    settings.setAttribute("list", "settings");
    settings.placeholder = "session.timeout.ms=45000 heartbeat.interval.ms=3000";
    gone.type = "button";
    gone.textContent = "Remove";
    gone.addEventListener("click", () => { row.remove(); this.find("#add").disabled = false; });
    row.append(policy, settings, gone);
    rows.append(row);
    this.find("#add").disabled = rows.children.length >= this.most;
  }

  /** The comparison in the form; rows without a policy and settings are no changes. */
  wanted() {
    const rows = [...this.find("#changes").children].map((row) => (
      { policy: row.querySelector("select").value, settings: row.querySelector("input").value }
    ));
    const changes = rows.filter((row) => row.policy || row.settings.trim());
    return { group: this.group(), changes, seeds: Number(this.find("#seeds").value) };
  }

  async ask(method, values) {
    const headers = { "content-type": "application/json" };
    try {
      const answer = await fetch("/what-if", { method, headers, body: JSON.stringify(values) });
      if (!answer.ok) this.say(await answer.text());
    } catch {
      this.say("The dashboard does not answer.");
    }
  }

  say(text) {
    this.find("#tried").textContent = text;
  }

  /** Show the state of the last comparison. */
  take(values) {
    const { state, group } = values, running = state === "reading" || state === "running";
    this.find("#compare").disabled = running;
    this.find("#cancel").hidden = !running;
    const bar = this.find("#progress"), about = group === this.group() ? "" : `Group ${group}: `;
    bar.hidden = !running;
    if (state === "running") {
      bar.max = values.total;
      bar.value = values.done;
    } else bar.removeAttribute("value");
    this.say({
      none: "", reading: `${about}Reading the evidence.`, cancelled: `${about}Cancelled.`,
      running: `${about}Run ${values.done} of ${values.total}.`,
      failed: `${about}${values.why}`, done: about && `${about}compared.`,
    }[state]);
    if (state === "done" && !about) new Outcomes(this.find("#outcome"), values);
    else this.find("#outcome").replaceChildren();
  }
}
