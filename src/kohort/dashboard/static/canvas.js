"use strict";
/* Draws a group over time on a canvas: generations, owners of partitions, lag.

   In: a `Picture`, a canvas and its sizes. Only visible rows and times are drawn, at most one block
   for each pixel of a row. Names are data: they are drawn, never set as HTML. Must not know: keys. */

const HEAD = 50, AXIS = 22, LAG = 64, ROW = 18, MOST_HEIGHT = 520, PIECE = 0.6;
const ICONS = [
  [/joined again/, "↻"], [/new member/, "+"], [/expired/, "✕"], [/left/, "−"], [/polled/, "⧗"],
  [/subscription|topic/, "≡"], [/static/, "⚓"], [/second round/, "②"], [/store|more members/, "!"],
  [/in time/, "⧖"], [/last join failed/, "↺"],
];

class TimelineCanvas {
  theme() {
    const style = getComputedStyle(document.documentElement);
    this.ink = {};
    for (const name of ["ink", "paper", "faint", "line", "card", "join", "leader", "gap"]) {
      this.ink[name] = style.getPropertyValue(`--${name}`).trim();
    }
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.fillStyle = this.ink.paper;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = this.ink.gap;
    pen.lineWidth = 3;
    for (const by of [-8, 0, 8]) {
      pen.beginPath();
      pen.moveTo(by - 1, 9);
      pen.lineTo(by + 9, -1);
      pen.stroke();
    }
    this.hatch = this.canvas.getContext("2d").createPattern(tile, "repeat");
    this.dark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.later();
  }

  resize() {
    const ratio = devicePixelRatio || 1, lag = this.data.lag.length ? LAG : 0;
    this.foot = AXIS + lag;
    const room = MOST_HEIGHT - HEAD - this.foot;
    this.row = this.fit ? Math.min(ROW, Math.max(1, room / Math.max(1, this.data.rows))) : ROW;
    this.height = HEAD + this.foot + Math.max(4, Math.min(this.data.rows * this.row, room));
    this.width = Math.max(300, this.scroller.clientWidth);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.scroller.style.height = `${this.height}px`;
    const whole = this.data.rows * this.row + HEAD + this.foot;
    this.spacer.style.height = `${Math.max(0, whole - this.height)}px`;
    this.pen = this.canvas.getContext("2d");
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.font = "12px system-ui, sans-serif";
    const names = [];
    for (let row = 0; row < Math.min(this.data.rows, 400); row += 1) names.push(this.data.name(row));
    const widest = Math.max(80, ...names.map((name) => this.pen.measureText(name).width));
    this.left = Math.min(200, this.width / 4, widest + 16);
    this.draw();
  }

  /** Draw once in the next frame. */
  later() {
    if (this.asked || !this.pen) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  // -- time and place -----------------------------------------------------------------------------

  /** The first and the last visible time. */
  span() {
    const last = this.data.now();
    if (this.view && !this.view.follows) return this.view;
    const first = this.data.begin ?? 0, margin = Math.max(1, (last - first) / 50);
    if (this.view) {
      const from = Math.max(first, last - this.view.length);
      return { from, to: last + Math.max(100, (last - from) / 50) };
    }
    return { from: first - (this.data.live ? 0 : margin), to: last + margin };
  }

  time(x) {
    const { from, to } = this.span();
    return from + ((x - this.left) / (this.width - this.left)) * (to - from);
  }

  place(at) {
    const { from, to } = this.seen;
    return this.left + ((at - from) / (to - from)) * (this.width - this.left);
  }

  row_at(y) {
    const row = Math.floor((y - HEAD + this.scroller.scrollTop) / this.row);
    const inside = y >= HEAD && y < this.height - this.foot && row >= 0 && row < this.data.rows;
    return inside ? row : null;
  }

  // -- drawing ------------------------------------------------------------------------------------

  draw() {
    if (!this.pen || this.data.begin === null) return;
    const pen = this.pen;
    this.seen = this.span();
    pen.fillStyle = this.ink.paper;
    pen.fillRect(0, 0, this.width, this.height);
    pen.textBaseline = "middle";
    this.drawRows();
    this.drawNames();
    this.drawGenerations();
    if (this.data.lag.length) this.drawLag();
    this.drawAxis();
    this.drawCursor();
    this.tell();
  }

  drawRows() {
    const pen = this.pen, top = HEAD, bottom = this.height - this.foot;
    const scroll = this.scroller.scrollTop, first = Math.floor(scroll / this.row);
    const last = Math.min(this.data.rows, Math.ceil((scroll + bottom - top) / this.row));
    pen.save();
    pen.beginPath();
    pen.rect(this.left, top, this.width - this.left, bottom - top);
    pen.clip();
    if (this.data.rowsBy === "partition" && this.data.since !== null && last > first) {
      const x = this.place(this.data.since), low = Math.min(bottom, top + this.data.rows * this.row);
      pen.fillStyle = this.hatch;
      pen.fillRect(x, top, this.place(this.data.now()) - x, low - top);
    }
    for (let row = first; row < last; row += 1) {
      const y = top + row * this.row - this.scroller.scrollTop;
      if (this.data.rowsBy === "member") this.drawCounts(row, y); else this.drawLane(row, y);
    }
    pen.restore();
  }

  drawLane(row, y) {
    const pen = this.pen, lane = this.data.lane(row), { from, to } = this.seen;
    const thin = this.row < 4 ? 0 : 1, high = this.row - thin;
    let place = bisect(lane, from, (piece) => piece[1]), edge = -1;
    while (place < lane.length && lane[place][0] < to) {
      const [begin, end, owner, ready] = lane[place];
      const x = Math.max(this.left, this.place(begin)), right = Math.min(this.width, this.place(end));
      const before = lane[place - 1];
      pen.fillStyle = this.data.colour(owner);
      pen.fillRect(x, y, Math.max(PIECE, right - x), high);
      if (ready > from) this.pale(x, Math.min(right, this.place(ready)), y, high);
      if (before && begin > before[1] && x - this.place(before[1]) < 2) {
        pen.fillStyle = this.ink.gap;
        pen.fillRect(x - 1, y, 2, high);
      } else if (thin && right - x > 3) {
        pen.fillStyle = this.ink.paper;
        pen.fillRect(x, y, 1, high);
      }
      if (this.row >= 12 && right - x > 14) this.label(this.data.owners[owner][1], x, right, y);
      edge = Math.max(right, x + PIECE);
      place += 1;
      if (place < lane.length && this.place(lane[place][1]) < edge + PIECE) {
        // Blocks below a pixel: go on with the first one that ends behind this pixel.
        const { from: f, to: t } = this.seen;
        const at = f + ((edge + PIECE - this.left) / (this.width - this.left)) * (t - f);
        place = Math.max(place, bisect(lane, at, (piece) => piece[1]));
      }
    }
    if (thin) {
      pen.fillStyle = this.ink.paper;
      pen.fillRect(this.left, y + high, this.width - this.left, 1);
    }
  }

  /** A time in which a partition has an owner that does not read it yet: pale, with a line. */
  pale(x, right, y, high) {
    const pen = this.pen;
    pen.globalAlpha = 0.7;
    pen.fillStyle = this.ink.paper;
    pen.fillRect(x, y, right - x, high);
    pen.globalAlpha = 1;
    pen.fillStyle = this.ink.gap;
    if (high > 4) pen.fillRect(x, y + high - 2, right - x, 2);
  }

  /** The name of an owner; where it does not fit, its end, which differs more often. */
  label(text, x, right, y) {
    const pen = this.pen, room = Math.floor((right - x - 6) / 6.8);
    pen.fillStyle = "#111";
    if (room < Math.min(2, text.length)) return;
    pen.fillText(text.length > room ? `…${text.slice(1 - room)}` : text, x + 4, y + this.row / 2);
  }

  drawCounts(row, y) {
    const pen = this.pen, lane = this.data.lane(row), { from, to } = this.seen, now = this.data.now();
    for (let at = bisect(lane, from, (piece) => piece[1]); at < lane.length; at += 1) {
      const [begin, end, count] = lane[at];
      if (begin >= to) break;
      const x = Math.max(this.left, this.place(begin));
      const right = Math.min(this.width, this.place(Math.min(end, now)));
      const high = Math.max(1, ((this.row - 1) * count) / this.data.most);
      pen.fillStyle = this.data.colour(row);
      pen.fillRect(x, y + this.row - 1 - high, Math.max(PIECE, right - x), high);
      if (this.row >= 12 && right - x > 8 + 7 * String(count).length) {
        pen.fillStyle = high > this.row * 0.6 ? "#111" : this.ink.ink;
        pen.fillText(String(count), x + 3, y + this.row / 2);
      }
    }
    pen.fillStyle = this.ink.line;
    pen.fillRect(this.left, y + this.row - 1, this.width - this.left, this.row < 4 ? 0 : 1);
  }

  drawNames() {
    const pen = this.pen, bottom = this.height - this.foot;
    pen.fillStyle = this.ink.paper;
    pen.fillRect(0, 0, this.left, this.height);
    if (this.row < 9) {
      pen.fillStyle = this.ink.faint;
      pen.fillText(`${this.data.rows} ${this.data.rowsBy}s`, 4, HEAD + 10);
      return;
    }
    pen.save();
    pen.beginPath();
    pen.rect(0, HEAD, this.left - 6, bottom - HEAD);
    pen.clip();
    pen.fillStyle = this.ink.ink;
    const first = Math.floor(this.scroller.scrollTop / this.row);
    for (let row = first; row < this.data.rows; row += 1) {
      const y = HEAD + row * this.row - this.scroller.scrollTop;
      if (y > bottom) break;
      pen.fillText(this.data.name(row), 4, y + this.row / 2);
    }
    pen.restore();
  }

  /** Bands of generations with their numbers and causes; below them the two waits. */
  drawGenerations() {
    const pen = this.pen, all = this.data.rebalances, now = this.data.now();
    pen.fillStyle = this.ink.paper;
    pen.fillRect(0, 0, this.width, HEAD - 2);
    pen.fillStyle = this.ink.faint;
    pen.fillText("generation", 4, 12);
    pen.fillText("rebalance", 4, 34);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width - this.left, this.height - this.foot);
    pen.clip();
    let edge = -Infinity, free = -Infinity;
    const first = Math.max(0, this.data.generation(this.seen.from));
    for (let place = first; place < all.length; place += 1) {
      const each = all[place], x = this.place(each.ended), next = all[place + 1];
      if (this.place(each.began) > this.width) break;
      const right = next ? this.place(next.ended) : this.place(now);
      if (x - edge >= PIECE || right - x > 3) {
        pen.fillStyle = place % 2 ? this.ink.card : this.ink.line;
        pen.fillRect(x, 2, Math.max(PIECE, right - x), 20);
        this.drawPhases(each);
        edge = x;
      }
      const left = Math.max(x, this.left), text = `${this.icon(each)} ${each.generation ?? "?"}`;
      if (left >= free && right - left > 6.6 * text.length + 4) {
        const room = Math.floor((right - left - 8) / 6.4), whole = `${text}  ${each.cause}`;
        pen.fillStyle = this.ink.ink;
        pen.fillText(whole.length <= room ? whole : text, left + 4, 12);
        free = left + 6.6 * text.length + 8;
      }
    }
    pen.restore();
  }

  icon(each) {
    const found = ICONS.find(([words]) => words.test(each.cause));
    return found ? found[1] : "•";
  }

  drawPhases(each) {
    const pen = this.pen, x = this.place(each.began), middle = this.place(each.joined);
    const right = this.place(each.ended), high = 16, y = 26;
    pen.fillStyle = this.ink.join;
    pen.fillRect(x, y, Math.max(3, middle - x), high);
    if (right > middle) {
      pen.fillStyle = this.ink.leader;
      pen.fillRect(middle, y + 3, right - middle, high - 6);
    }
    pen.fillStyle = this.ink.join;
    pen.globalAlpha = 0.35;
    pen.fillRect(x, HEAD - 6, 1, this.height - HEAD - this.foot + 6);
    pen.globalAlpha = 1;
  }

  drawLag() {
    const pen = this.pen, top = this.height - this.foot + 8, low = this.height - AXIS - 4;
    const { from, to } = this.seen, points = this.data.lag;
    const first = Math.max(0, bisect(points, from, (point) => point[0]) - 1);
    let most = 1, oldest = 0, last = first;
    for (; last < points.length && points[last][0] <= to; last += 1) {
      most = Math.max(most, points[last][1]);
      oldest = Math.max(oldest, points[last][2] ?? 0);
    }
    pen.fillStyle = this.ink.paper;
    pen.fillRect(this.left, top - 8, this.width - this.left, LAG);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, top - 6, this.width - this.left, low - top + 8);
    pen.clip();
    pen.fillStyle = this.ink.card;
    for (const each of this.data.rebalances.slice(Math.max(0, this.data.generation(from)))) {
      const x = this.place(each.began), stopped = each.phases?.at(-1)?.[2] ?? each.ended;
      if (x > this.width) break;
      const left = Math.min(x, this.place(each.phases?.[0]?.[1] ?? each.began));
      pen.fillRect(left, top - 6, Math.max(1, this.place(stopped) - left), low - top + 8);
    }
    const shown = points.slice(first, last + 1);
    const line = (which, highest, ink, dash) => {
      pen.strokeStyle = ink;
      pen.setLineDash(dash);
      pen.beginPath();
      for (const point of shown) {
        const x = this.place(point[0]), y = low - ((point[which] ?? 0) / highest) * (low - top);
        if (point === shown[0]) pen.moveTo(x, y); else pen.lineTo(x, y);
      }
      pen.stroke();
    };
    pen.lineWidth = 1;
    if (oldest) line(2, oldest, this.ink.faint, [3, 3]);
    pen.lineWidth = 1.5;
    line(1, most, this.ink.ink, []);
    pen.restore();
    pen.fillStyle = this.ink.faint;
    pen.fillText("lag", 4, top + 8);
    pen.fillText(`at most ${most.toLocaleString("en")}`, 4, top + 22);
    if (oldest) pen.fillText(`┄ age ≤ ${spanText(oldest)}`, 4, top + 36);
    pen.fillRect(this.left, low + 0.5, this.width - this.left, 0.5);
  }

  drawAxis() {
    const pen = this.pen, { from, to } = this.seen, y = this.height - AXIS / 2;
    pen.fillStyle = this.ink.paper;
    pen.fillRect(0, this.height - AXIS, this.width, AXIS);
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    for (const unit of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800]) steps.push(unit * 1000);
    for (const unit of [1, 2, 6, 12, 24, 48, 168, 720]) steps.push(unit * 3600000);
    const least = ((to - from) / (this.width - this.left)) * 120;
    const step = steps.find((each) => each >= least) ?? steps.at(-1);
    const zero = (this.data.base * 1000) % step;
    pen.fillStyle = this.ink.faint;
    for (let at = Math.ceil((from + zero) / step) * step - zero; at < to; at += step) {
      const x = this.place(at);
      if (x < this.left) continue;
      pen.fillRect(x, this.height - AXIS, 1, 4);
      const text = this.data.clock(at, step), width = pen.measureText(text).width;
      if (x + width < this.width) pen.fillText(text, x + 3, y + 2);
    }
  }

  drawCursor() {
    const at = this.cursor;
    if (!at) return;
    const pen = this.pen, x = Math.min(this.width - 2, Math.max(this.left, this.place(at.at)));
    pen.strokeStyle = this.ink.ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, 2);
    pen.lineTo(x, this.height - this.foot);
    pen.stroke();
    if (at.row < 0) return pen.strokeRect(this.left + 1, 1, this.width - this.left - 2, 22);
    const y = HEAD + at.row * this.row - this.scroller.scrollTop;
    if (y >= HEAD - 1) pen.strokeRect(1, y, this.width - 2, this.row - 1);
    return undefined;
  }
}
