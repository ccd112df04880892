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
    this.find("#outcome").replaceChildren(...(state === "done" && !about ? this.outcome(values) : []));
    if (state === "done" && !about) this.draw(values);
  }

  make(tag, text, className) {
    const made = document.createElement(tag);
    made.textContent = text ?? "";
    if (className) made.className = className;
    return made;
  }

  outcome(values) {
    const rows = values.evidence.length ? [[values.evidence, null]] : [];
    rows.push(...values.outcomes.map((each) => [each.cells, each]));
    const known = this.make("details"), guessed = values.guessed.join(", ");
    known.append(
      this.make("summary", "Figures of the deployment, and the sources of each"),
      this.table(["Figure", "Value", "Known", "From"], values.figures.map((cells) => [cells])),
    );
    this.pictures = this.make("div", "", "beside");
    return [
      this.make("p", values.headline),
      ...values.notes.map((text) => this.make("p", text, "finding")),
      this.table(["Policy and settings", ...values.columns.map((head) => head.toLowerCase())], rows, values.most),
      this.make("pre", values.verdict.join("\n")),
      ...(guessed ? [this.make("p", `Assumed: ${guessed}.`, "known")] : []),
      this.pictures, known,
    ];
  }

  /** Rows of cells; the dead time of an outcome is drawn as a bar with its spread, too. */
  table(heads, rows, most) {
    const table = this.make("table"), head = table.createTHead().insertRow();
    head.append(...heads.map((text) => this.make("th", text)));
    const body = table.createTBody();
    for (const [cells, outcome] of rows) {
      const row = body.insertRow();
      cells.forEach((text, place) => {
        const cell = row.insertCell();
        cell.append(text);
        if (place === 1 && outcome) cell.append(this.bar(outcome, most));
      });
    }
    return table;
  }

  bar({ dead, spread }, most) {
    const bar = this.make("div", "", "bar"), share = (value) => `${(100 * value) / (most || 1)}%`;
    const mean = this.make("div"), range = this.make("div", "", "spread");
    mean.style.width = share(dead);
    range.style.left = share(Math.max(0, dead - spread));
    range.style.width = share(2 * spread);
    bar.append(mean, range);
    return bar;
  }

  /** The owners of the partitions in one run of each outcome, side by side. */
  draw(values) {
    for (const { cells, picture } of values.outcomes) {
      if (!picture) continue;
      const box = this.make("div"), host = this.make("div", "", "timeline");
      box.append(this.make("h4", `${cells[0]}: the owners in one run`), host);
      this.pictures.append(box);
      new Timeline(host, picture, () => {}).squeeze();
    }
  }
}
