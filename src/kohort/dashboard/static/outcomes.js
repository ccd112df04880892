"use strict";
/* The outcomes of a what-if side by side: costs, settings to change, the owners in one run of each.

   In: the values of a comparison. Out: elements. Texts are set as text, never as HTML. */

class Outcomes {
  constructor(root, values) {
    root.replaceChildren(...this.outcome(values));
    this.draw(values);
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
