"use strict";
/* One group over time: its partitions, their owners, rebalances, lag.

   In: the messages of `kohort.explain.pages.picture`. The page of `kohort explain` has one message in it,
   the dashboard gets them one after another. Out: rows of blocks, and words about a row and a time.
   Must not know: the page. */

const CLOSE_MS = 5;

/** The first place of a sorted array at which `key(item)` is not less than `value`. */
function bisect(items, value, key) {
  let low = 0, high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(items[middle]) < value) low = middle + 1; else high = middle;
  }
  return low;
}

/** The lag, and the age of the oldest last commit among the partitions with a lag. */
function lagText([, lag, age]) {
  const old = age == null ? "" : `, oldest commit ${spanText(age)} before`;
  return `lag ${lag.toLocaleString("en")}${old}`;
}

function spanText(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 600000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`;
}

class Picture {
  constructor(message) {
    this.rowsBy = "partition";
    this.reset();
    this.take(message);
  }

  reset() {
    this.partitions = [];
    this.owners = [];
    this.lanes = [];
    this.open = [];
    this.rebalances = [];
    this.lag = [];
    this.begin = this.end = this.since = null;
    this.order = [];
  }

  /** Take the whole picture, or what was added since the last message. */
  take(message) {
    if (message.whole) {
      this.reset();
      this.base = message.base;
      this.dated = message.dated;
    }
    for (const name of message.partitions) {
      this.partitions.push(name);
      this.lanes.push([]);
    }
    this.owners.push(...message.owners);
    for (const [partition, owner, begin, end, ready] of message.owned) {
      this.lanes[partition].push([begin, end, owner, ready]);
    }
    this.open = message.open;
    this.rebalances.splice(message.from, Infinity, ...message.rebalances);
    this.lag.push(...message.lag);
    this.live = message.live;
    if (message.first !== null) this.begin = message.first;
    if (message.since !== null) this.since = message.since;
    this.end = message.last;
    this.received = performance.now();
    if (message.partitions.length || message.whole) this.sort();
    this.counts = null;
    this.present = new Map(this.open.map(([place, owner, begin]) => [place, [begin, owner]]));
    if (message.owners.length || message.whole) this.choose();
  }

  /** Choose a colour for each owner: members of one client id that follow each other, as a process
   * and its next start, have the same one. */
  choose() {
    const spans = this.owners.map(() => [Infinity, -Infinity]);
    const note = (owner, begin, end) => {
      spans[owner] = [Math.min(spans[owner][0], begin), Math.max(spans[owner][1], end)];
    };
    for (const lane of this.lanes) for (const [begin, end, owner] of lane) note(owner, begin, end);
    for (const [, owner, begin] of this.open) note(owner, begin, Infinity);
    const last = new Map();
    this.colours = this.owners.map((_, owner) => owner);
    const inOrder = [...this.colours].sort((a, b) => spans[a][0] - spans[b][0]);
    for (const owner of inOrder) {
      const client = this.owners[owner][2], before = client ? last.get(client) : undefined;
      if (before !== undefined && spans[before][1] <= spans[owner][0] + CLOSE_MS) {
        this.colours[owner] = this.colours[before];
      }
      if (client) last.set(client, owner);
    }
  }

  /** The colour of an owner. */
  colour(owner) {
    const number = this.colours[owner], light = [62, 80, 70, 86, 75][number % 5];
    return `hsl(${Math.round(number * 137.508) % 360} 55% ${light}%)`;
  }

  sort() {
    const collator = new Intl.Collator("en", { numeric: true });
    this.order = this.partitions.map((_, place) => place)
      .sort((a, b) => collator.compare(this.partitions[a], this.partitions[b]));
  }

  /** The present end of the picture: it moves on between two messages of a live group. */
  now() {
    return this.live ? this.end + (performance.now() - this.received) : this.end;
  }

  /** The blocks of a row, sorted: begin, end, owner. */
  lane(row) {
    if (this.rowsBy === "member") return this.steps()[row];
    const place = this.order[row], open = this.present.get(place);
    return open ? [...this.lanes[place], [open[0], this.now(), open[1]]] : this.lanes[place];
  }

  /** For each member the number of its partitions over time: begin, end, count. */
  steps() {
    if (this.counts) return this.counts;
    const changes = this.owners.map(() => []);
    this.lanes.forEach((lane) => {
      for (const [begin, end, owner] of lane) changes[owner].push([begin, 1], [end, -1]);
    });
    for (const [, owner, begin] of this.open) changes[owner].push([begin, 1], [Infinity, -1]);
    this.counts = changes.map((list) => {
      list.sort((a, b) => a[0] - b[0]);
      const found = [];
      let count = 0;
      list.forEach(([at, by], place) => {
        count += by;
        const next = list[place + 1];
        if (count && next && next[0] > at) found.push([at, next[0], count]);
      });
      return found;
    });
    this.most = 1;
    for (const steps of this.counts) {
      for (const step of steps) this.most = Math.max(this.most, step[2]);
    }
    return this.counts;
  }

  get rows() {
    return this.rowsBy === "member" ? this.owners.length : this.order.length;
  }

  name(row) {
    return this.rowsBy === "member" ? this.owners[row][0] : this.partitions[this.order[row]];
  }

  /** The number of the rebalance at a time, or of the last one before it; -1 if there is none. */
  generation(at) {
    const place = bisect(this.rebalances, at + CLOSE_MS, (each) => each.ended);
    const next = this.rebalances[place];
    return next && next.began <= at + CLOSE_MS ? place : place - 1;
  }

  /** A time of day in UTC; `step` tells how exact. */
  clock(at, step) {
    const text = new Date(this.base * 1000 + at).toISOString();
    if (step >= 86400000) return text.slice(5, 10);
    return text.slice(11, step < 1000 ? 23 : step < 60000 ? 19 : 16);
  }

  /** The words for a row and a time. */
  words(row, at) {
    const when = this.clock(at, 1), place = this.generation(at), each = this.rebalances[place];
    const generation = each && each.generation !== null ? `generation ${each.generation}` : "";
    if (row < 0) return each ? `${when}  ${each.told}` : `${when}  before the first rebalance`;
    const lane = this.lane(row);
    const piece = lane[bisect(lane, at, (one) => one[1])];
    const inside = piece && piece[0] <= at;
    let what = "nobody consumes it";
    if (this.rowsBy === "member") what = inside ? `${piece[2]} partitions` : "no partitions";
    else if (inside) {
      const still = this.live && piece[1] >= this.now() - CLOSE_MS ? ", and still" : "";
      const waits = at < piece[3] ? ", and not read yet" : "";
      what = `owned by ${this.owners[piece[2]][0]} for ${spanText(piece[1] - piece[0])}${still}${waits}`;
    } else if (this.since === null || at < this.since) what = "owner not known yet";
    else if (at > this.now()) what = "behind the end";
    const lag = this.behind(at);
    return [when, `${this.name(row)}: ${what}`, generation, lag].filter(Boolean).join("  ");
  }

  /** What a rebalance changed: for each partition with an owner its last owner before, and its owner
   * behind the rebalance; null if there is none. In the order of the rows. */
  changes(place) {
    const each = this.rebalances[place], next = this.rebalances[place + 1], found = [];
    const until = next ? next.began : Infinity, since = this.rebalances[place - 1]?.ended ?? -Infinity;
    const gives = next && /second round/.test(next.cause);
    for (const partition of this.order) {
      const lane = this.lanes[partition], open = this.present.get(partition);
      const pieces = open ? [...lane, [open[0], Infinity, open[1]]] : lane;
      const old = pieces[bisect(pieces, each.began, (piece) => piece[0]) - 1];
      let now = pieces[bisect(pieces, until, (piece) => piece[0]) - 1];
      if (now && now === old) {
        const gone = now[1] <= each.ended || (gives && now[1] <= until);
        if (gone) now = undefined;
        if (gone && now === undefined && old[1] <= Math.min(since, each.began - CLOSE_MS)) continue;
      }
      if (old || now) found.push({ partition, before: old ? old[2] : null, after: now ? now[2] : null });
    }
    return found;
  }

  /** The lag of the group at a time, in words; empty if it is not known. */
  behind(at) {
    const place = bisect(this.lag, at, (point) => point[0]);
    const point = this.lag[place - 1] ?? (this.lag[0]?.[0] === at ? this.lag[0] : undefined);
    return point ? lagText(point) : "";
  }
}
