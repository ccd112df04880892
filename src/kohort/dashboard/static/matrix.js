"use strict";
/* Members × partitions of one rebalance, on a canvas: kept, gained, lost.

   In: a `Picture`, and for each partition its owner before and behind the rebalance. A partition has
   at most two cells, so 200 × 1,000 cells cost as much as 1,000 partitions. Only visible columns are
   drawn. Must not know: rebalances. */

const CELL = 16, SMALL = 5, HEADS = 84, MATRIX_HEIGHT = 420;
const MATRIX_HELP = "Members × partitions: · kept, + gained, − lost. Arrows or pointer: one partition.";

class MoveMatrix {
  constructor(root, data, all) {
    this.data = data;
    this.all = all;
    this.only = all.some(({ before, after }) => before !== after);
    this.cell = CELL;
    this.cursor = null;
    const bar = made(root, "div", "tools");
    this.onlyButton = this.button(bar, "", () => { this.only = !this.only; this.choose(); });
    this.sizeButton = this.button(bar, "", () => {
      this.cell = this.cell === CELL ? SMALL : CELL;
      this.choose();
    });
    this.scroller = made(root, "div", "scroller matrix");
    this.scroller.tabIndex = 0;
    this.scroller.setAttribute("role", "application");
    this.scroller.setAttribute("aria-label", MATRIX_HELP);
    this.canvas = made(this.scroller, "canvas");
    this.spacer = made(this.scroller, "div");
    this.told = made(root, "div", "told", MATRIX_HELP);
    this.told.setAttribute("aria-live", "polite");
    this.scroller.addEventListener("scroll", () => this.later());
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("pointermove", (event) => this.point(event));
    new ResizeObserver(() => this.resize()).observe(this.scroller);
    this.media = matchMedia("(prefers-color-scheme: dark)");
    this.media.addEventListener("change", () => this.later());
    this.choose();
  }

  button(bar, label, act) {
    const button = made(bar, "button", "", label);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  }

  /** Choose the columns and the rows: those with a change, or all. */
  choose() {
    this.onlyButton.textContent = this.only ? "All partitions" : "Only changes";
    this.sizeButton.textContent = this.cell === CELL ? "Small cells" : "Large cells";
    this.columns = this.only ? this.all.filter(({ before, after }) => before !== after) : this.all;
    const owners = new Set(this.columns.flatMap(({ before, after }) => [before, after]));
    owners.delete(null);
    const collator = new Intl.Collator("en", { numeric: true });
    this.rows = [...owners].sort((a, b) => collator.compare(this.name(a), this.name(b)));
    this.row = new Map(this.rows.map((owner, place) => [owner, place]));
    this.cursor = null;
    this.scroller.scrollTo(0, 0);
    this.resize();
  }

  name(owner) {
    return this.data.owners[owner][0];
  }

  /** The client id and the beginning of the random part, as in the picture above. */
  label(owner) {
    return this.data.owners[owner][1];
  }

  resize() {
    const ratio = devicePixelRatio || 1, large = this.cell === CELL;
    this.top = large ? HEADS : 4;
    const pen = this.canvas.getContext("2d");
    pen.font = "12px system-ui, sans-serif";
    const widest = Math.max(60, ...this.rows.slice(0, 400).map((each) => pen.measureText(this.label(each)).width));
    this.width = Math.max(200, this.scroller.clientWidth);
    this.left = Math.min(220, this.width / 3, widest + 12);
    const whole = this.top + this.rows.length * this.cell + 4;
    this.height = Math.min(MATRIX_HEIGHT, whole);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.scroller.style.height = `${this.height + 2}px`;
    this.spacer.style.width = `${this.left + this.columns.length * this.cell + 4}px`;
    this.spacer.style.height = `${Math.max(0, whole - this.height)}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen = pen;
    this.draw();
  }

  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    const pen = this.pen, { scrollLeft, scrollTop } = this.scroller, size = this.cell;
    const style = getComputedStyle(document.documentElement);
    this.ink = (name) => style.getPropertyValue(`--${name}`).trim();
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = this.ink("paper");
    pen.fillRect(0, 0, this.width, this.height);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, this.width, this.height);
    pen.clip();
    const first = Math.floor(scrollLeft / size);
    const last = Math.min(this.columns.length, Math.ceil((scrollLeft + this.width) / size));
    for (let column = first; column < last; column += 1) {
      const { before, after } = this.columns[column], x = this.left + column * size - scrollLeft;
      if (before === after) this.mark(x, before, "·");
      else {
        if (before !== null) this.mark(x, before, "−");
        if (after !== null) this.mark(x, after, "+");
      }
    }
    this.lines();
    pen.restore();
    this.names(first, last);
  }

  mark(x, owner, sign) {
    const pen = this.pen, size = this.cell, large = size === CELL;
    const y = this.top + this.row.get(owner) * size - this.scroller.scrollTop;
    if (y < this.top - size || y > this.height) return;
    if (sign === "−") {
      pen.strokeStyle = this.ink("gap");
      pen.lineWidth = large ? 2 : 1;
      pen.strokeRect(x + 1.5, y + 1.5, size - 3, size - 3);
    } else {
      pen.globalAlpha = sign === "+" ? 1 : 0.3;
      pen.fillStyle = large ? this.data.colour(owner) : this.ink("ink");
      pen.fillRect(x + 0.5, y + 0.5, size - 1, size - 1);
      pen.globalAlpha = 1;
    }
    if (!large) return;
    pen.fillStyle = sign === "+" ? "#111" : this.ink("ink");
    pen.textAlign = "center";
    pen.fillText(sign, x + size / 2, y + size / 2 + 1);
    pen.textAlign = "left";
  }

  lines() {
    const pen = this.pen, size = this.cell;
    pen.fillStyle = this.ink("line");
    const begin = Math.floor(this.scroller.scrollTop / size);
    for (let row = begin; row <= this.rows.length && size === CELL; row += 1) {
      const y = this.top + row * size - this.scroller.scrollTop;
      if (y > this.height) break;
      pen.fillRect(this.left, y, this.width, 0.5);
    }
    if (!this.cursor) return;
    const { column, row } = this.cursor;
    pen.strokeStyle = this.ink("ink");
    pen.lineWidth = 2;
    pen.strokeRect(
      this.left + column * size - this.scroller.scrollLeft,
      this.top + row * size - this.scroller.scrollTop, size, size,
    );
  }

  /** The names of the rows and, upright, of the columns. */
  names(first, last) {
    const pen = this.pen, size = this.cell;
    pen.fillStyle = this.ink("faint");
    if (size !== CELL) {
      pen.fillText(`${this.rows.length} members ×`, 4, 12);
      pen.fillText(`${this.columns.length} partitions`, 4, 28);
      return;
    }
    pen.save();
    pen.beginPath();
    pen.rect(0, this.top, this.left - 4, this.height);
    pen.clip();
    pen.fillStyle = this.ink("ink");
    for (let row = Math.floor(this.scroller.scrollTop / size); row < this.rows.length; row += 1) {
      const y = this.top + (row + 0.5) * size - this.scroller.scrollTop;
      if (y > this.height) break;
      pen.fillText(this.label(this.rows[row]), 4, y);
    }
    pen.restore();
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width, this.top - 2);
    pen.clip();
    pen.fillStyle = this.ink("ink");
    for (let column = first; column < last; column += 1) {
      const x = this.left + (column + 0.5) * size - this.scroller.scrollLeft;
      pen.save();
      pen.translate(x, this.top - 6);
      pen.rotate(-Math.PI / 2);
      pen.fillText(this.short(this.data.partitions[this.columns[column].partition]), 0, 0);
      pen.restore();
    }
    pen.restore();
  }

  /** The end of a long name: it has the number of the partition. */
  short(name) {
    return name.length > 13 ? `…${name.slice(-12)}` : name;
  }

  // -- hands --------------------------------------------------------------------------------------

  point(event) {
    const box = this.scroller.getBoundingClientRect();
    const x = event.clientX - box.left - this.left, y = event.clientY - box.top - this.top;
    if (x < 0 || y < 0) return;
    this.set(
      Math.floor((x + this.scroller.scrollLeft) / this.cell),
      Math.floor((y + this.scroller.scrollTop) / this.cell),
    );
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const { column, row } = this.cursor ?? { column: -1, row: 0 };
    const steps = {
      ArrowLeft: [column - 1, row], ArrowRight: [column + 1, row], ArrowUp: [column, row - 1],
      ArrowDown: [column, row + 1], Home: [0, row], End: [this.columns.length - 1, row],
    };
    const to = steps[event.key];
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    const most = [this.columns.length - 1, this.rows.length - 1];
    this.set(...to.map((value, place) => Math.max(0, Math.min(most[place], value))), true);
  }

  set(column, row, follow) {
    if (column >= this.columns.length || row >= this.rows.length) return;
    this.cursor = { column, row };
    this.told.textContent = this.words(column, row);
    const box = this.scroller, x = column * this.cell, y = row * this.cell;
    if (follow) {
      const wide = this.width - this.left - this.cell, high = this.height - this.top - this.cell;
      box.scrollLeft = Math.min(x, Math.max(box.scrollLeft, x - wide));
      box.scrollTop = Math.min(y, Math.max(box.scrollTop, y - high));
    }
    this.later();
  }

  words(column, row) {
    const { partition, before, after } = this.columns[column], owner = this.rows[row];
    const name = this.data.partitions[partition], told = (each) => this.name(each);
    let what = `from ${before === null ? "nobody" : told(before)} to ${after === null ? "nobody yet" : told(after)}`;
    if (before === after) what = `kept by ${told(after)}`;
    const here = owner === after && before !== after ? "gained" : owner === before && before !== after ? "lost" : "";
    return [`${name}: ${what}`, `${told(owner)}${here && `: ${here}`}`].join("  ·  ");
  }
}
