"use strict";
/* A group over time with its buttons, pointer and keys: what is seen, and words about it.

   In: the messages of a `Picture`, pointer and keys. Names are data: they are set as text, never as
   HTML. Must not know: how rows are drawn. */

const LIVE_MS = 600000, TICK_MS = 200;
const HELP = "Arrows: move to the next row or change. Enter: the rebalance in detail. + and −: "
  + "zoom. 0: all. [ and ]: earlier, later. M: partitions or members. F: all rows at once.";

/** Mark a row of a table; the table is scrolled to the row, the page is not. */
function markRow(row) {
  if (!row) return;
  for (const marked of row.parentElement.querySelectorAll(".chosen")) marked.classList.remove("chosen");
  row.classList.add("chosen");
  const box = row.closest(".long");
  if (box) box.scrollTop = row.offsetTop - box.offsetTop - box.clientHeight / 2;
}

class Timeline extends TimelineCanvas {
  /** host: an empty element; message: the whole picture; go: called with the number of a rebalance
   * that is shown in detail. */
  constructor(host, message, go) {
    super();
    this.go = go;
    this.data = new Picture(message);
    this.fit = false;
    this.cursor = null;
    this.pointer = null;
    this.view = this.data.live ? { follows: true, length: LIVE_MS } : null;
    this.build(host);
  }

  /** Take a further message. */
  take(message) {
    const rows = this.data.rows, lag = this.data.lag.length, { place } = this.detail;
    this.data.take(message);
    if (message.whole) this.detail.show(null);
    else if (place !== null && place >= message.from) this.detail.show(place);
    if (this.data.rows !== rows || !this.data.lag.length !== !lag) this.resize();
    else this.later();
  }

  // -- the page -----------------------------------------------------------------------------------

  build(host) {
    const make = (parent, tag, className) => {
      const made = document.createElement(tag);
      made.className = className;
      parent.append(made);
      return made;
    };
    const bar = make(host, "div", "tools");
    const button = (label, title, act) => {
      const made = make(bar, "button", "");
      made.type = "button";
      made.textContent = label;
      made.title = title;
      made.addEventListener("click", () => { act(); this.later(); });
      return made;
    };
    const both = "Rows of partitions or of members (M)";
    this.byButton = button("Rows: partitions", both, () => this.swap());
    this.fitButton = button("All rows", "All rows at once (F)", () => this.squeeze());
    button("−", "Zoom out (−)", () => this.zoom(2));
    button("+", "Zoom in (+)", () => this.zoom(0.5));
    button("All", "The whole time (0)", () => { this.view = null; });
    if (this.data.live) button("Live", "The last minutes (L)", () => this.follow());
    this.scroller = make(host, "div", "scroller");
    this.scroller.tabIndex = 0;
    this.scroller.setAttribute("role", "application");
    this.scroller.setAttribute("aria-label", `Owners of partitions over time. ${HELP}`);
    this.canvas = make(this.scroller, "canvas", "");
    this.spacer = make(this.scroller, "div", "");
    this.tip = make(host, "div", "tip");
    this.tip.hidden = true;
    this.told = make(host, "div", "told");
    this.told.setAttribute("aria-live", "polite");
    this.told.textContent = HELP;
    this.detail = new RebalanceDetail(host, this.data);
    this.listen();
    this.theme();
    if (this.data.live) this.ticks = setInterval(() => this.tick(host), TICK_MS);
  }

  /** A live picture moves on with the clock, while it is on a page that is seen. */
  tick(host) {
    if (!host.contains(this.canvas)) clearInterval(this.ticks);
    else if (!document.hidden) this.later();
  }

  listen() {
    const box = this.scroller;
    box.addEventListener("scroll", () => this.later());
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    box.addEventListener("pointerdown", (event) => {
      if (event.button || event.offsetX > this.canvas.clientWidth) return;
      this.drag = { x: event.clientX, view: this.span(), moved: false };
    });
    box.addEventListener("pointermove", (event) => this.move(event));
    box.addEventListener("pointerleave", () => { this.pointer = this.drag = null; this.later(); });
    box.addEventListener("pointerup", () => {
      if (this.drag && !this.drag.moved && this.pointer) this.open_at(this.time(this.pointer.x));
      this.drag = null;
    });
    new ResizeObserver(() => this.resize()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme());
  }

  // -- the visible time -----------------------------------------------------------------------------

  zoom(by, around) {
    const { from, to } = this.span(), last = this.data.now();
    const most = Math.max(1000, 2 * (last - this.data.begin));
    const length = Math.min(Math.max(20, (to - from) * by), most);
    if (around === undefined && this.data.live && to >= last) {
      this.view = { follows: true, length };
      return;
    }
    const at = around ?? (this.cursor ? this.cursor.at : (from + to) / 2);
    const part = (at - from) / (to - from);
    this.view = { from: at - part * length, to: at + (1 - part) * length };
  }

  /** Show the last minutes, and move on with time. */
  follow() {
    this.view = this.data.live ? { follows: true, length: LIVE_MS } : null;
  }

  pan(part) {
    const { from, to } = this.span(), by = (to - from) * part;
    this.view = { from: from + by, to: to + by };
  }

  swap() {
    this.data.rowsBy = this.data.rowsBy === "member" ? "partition" : "member";
    this.byButton.textContent = `Rows: ${this.data.rowsBy}s`;
    this.cursor = null;
    this.resize();
  }

  squeeze() {
    this.fit = !this.fit;
    this.fitButton.textContent = this.fit ? "Large rows" : "All rows";
    this.resize();
  }

  // -- telling ------------------------------------------------------------------------------------

  tell() {
    const pointer = this.pointer;
    this.tip.hidden = !pointer || pointer.x < this.left || Boolean(this.drag && this.drag.moved);
    if (this.tip.hidden) return;
    const row = pointer.y < HEAD ? -1 : this.row_at(pointer.y), at = this.time(pointer.x);
    let text = row === null ? "" : this.data.words(row, at);
    if (row === null && this.data.lag.length && pointer.y > this.height - this.foot) {
      const point = this.data.lag[Math.max(0, bisect(this.data.lag, at, (one) => one[0]) - 1)];
      text = `${this.data.clock(point[0], 1000)}  ${lagText(point)}`;
    }
    this.tip.hidden = !text;
    this.tip.textContent = text;
    const box = this.scroller.getBoundingClientRect();
    const x = Math.min(pointer.x + 14, this.width - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, x)}px, ${pointer.y + 18}px)`;
    this.tip.style.top = `${box.top + scrollY}px`;
    this.tip.style.left = `${box.left + scrollX}px`;
  }

  // -- hands --------------------------------------------------------------------------------------

  move(event) {
    const box = this.scroller.getBoundingClientRect();
    this.pointer = { x: event.clientX - box.left, y: event.clientY - box.top };
    if (this.drag) {
      const by = event.clientX - this.drag.x, { from, to } = this.drag.view;
      if (Math.abs(by) > 3 || this.drag.moved) {
        const shift = (by / (this.width - this.left)) * (to - from);
        this.drag.moved = true;
        this.view = { from: from - shift, to: to - shift };
      }
    }
    this.later();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const box = this.scroller.getBoundingClientRect();
    if (event.ctrlKey) {
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.clientX - box.left));
    } else this.pan((event.deltaX || event.deltaY) / this.width);
    this.later();
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const steps = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      ArrowUp: () => this.climb(-1), ArrowDown: () => this.climb(1),
      PageUp: () => this.climb(-10), PageDown: () => this.climb(10),
      Home: () => this.jump(this.data.begin), End: () => this.jump(this.data.now()),
      Enter: () => { if (this.cursor) this.open_at(this.cursor.at); },
      Escape: () => { this.cursor = null; this.told.textContent = HELP; },
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      "0": () => { this.view = null; }, "[": () => this.pan(-0.25), "]": () => this.pan(0.25),
      m: () => this.swap(), f: () => this.squeeze(), l: () => this.follow(),
    };
    const act = steps[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
    this.later();
  }

  open_at(at) {
    const place = this.data.generation(at);
    if (place >= 0) this.choose(place);
  }

  /** Show a rebalance in detail. */
  choose(place) {
    this.detail.show(place);
    this.go(place);
  }

  /** Go to the next change of the row, or to the next rebalance in the row of generations. */
  step(by) {
    const cursor = this.cursor ?? { row: -1, at: this.span().from };
    let times = this.data.rebalances.map((each) => each.began);
    if (cursor.row >= 0) {
      times = this.data.lane(cursor.row).flatMap(([begin, end]) => [begin, end]);
      const last = this.data.live ? this.data.now() - 1 : this.data.now();
      times = [...new Set(times)].filter((at) => at <= last).sort((a, b) => a - b);
    }
    const place = by > 0 ? bisect(times, cursor.at + 1, (at) => at)
      : bisect(times, cursor.at, (at) => at) - 1;
    const at = times[Math.max(0, Math.min(times.length - 1, place))] ?? cursor.at;
    this.set(cursor.row, at);
  }

  climb(by) {
    const cursor = this.cursor ?? { row: -1, at: (this.span().from + this.span().to) / 2 };
    this.set(Math.max(-1, Math.min(this.data.rows - 1, cursor.row + by)), cursor.at);
  }

  jump(at) {
    this.set(this.cursor ? this.cursor.row : -1, at);
  }

  set(row, at) {
    this.cursor = { row, at };
    const { from, to } = this.span();
    if (at < from || at > to) this.view = { from: at - (to - from) / 2, to: at + (to - from) / 2 };
    if (row >= 0) {
      const room = this.height - HEAD - this.foot, top = row * this.row;
      const scroll = this.scroller.scrollTop;
      if (top < scroll) this.scroller.scrollTop = top;
      else if (top + this.row > scroll + room) this.scroller.scrollTop = top + this.row - room;
    }
    this.told.textContent = this.data.words(row, at + (row < 0 ? 0 : CLOSE_MS / 10));
  }
}
