"use strict";
/* One rebalance: its phases, when each member joined, and the partitions that changed their owner.

   In: a `Picture`, the number of a rebalance. Names are data: they are set as text, never as HTML.
   Must not know: the picture over time. */

const MOST_PAIRS = 12;

function made(parent, tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** "t-0, t-1, … and 7 more": the first names of a list. */
function listed(names, most) {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

class RebalanceDetail {
  /** host: an element; data: a `Picture`. */
  constructor(host, data) {
    this.data = data;
    this.root = made(host, "section", "detail");
    this.root.hidden = true;
    this.place = null;
  }

  show(place) {
    const each = this.data.rebalances[place];
    this.place = each ? place : null;
    this.root.hidden = !each;
    this.root.replaceChildren();
    if (!each) return;
    made(this.root, "h3", "", each.told);
    if (each.phases?.length || each.joins?.length) this.waits(each);
    this.owners(each, place);
  }

  // -- phases and members -------------------------------------------------------------------------

  /** One row for each phase and for each member, on one axis of time. */
  waits(each) {
    if (each.waited) made(this.root, "p", "wait", each.waited);
    const times = each.phases.flatMap(([, begin, end]) => [begin, end]);
    for (const join of each.joins) times.push(...join.slice(1, 6).filter((at) => at !== null));
    const first = Math.min(...times), last = Math.max(...times, first + 1);
    const share = (at) => (100 * (at - first)) / (last - first);
    const scroll = made(this.root, "div", "scroll long"), table = made(scroll, "table", "waits");
    const head = made(made(table, "thead"), "tr");
    for (const name of ["Phase or member", "Time", `${spanText(last - first)} from left to right`]) {
      made(head, "th", "", name);
    }
    const body = made(table, "tbody");
    const line = (name, text) => {
      const row = made(body, "tr");
      made(row, "td", "", name);
      made(row, "td", "narrow", text);
      return made(made(row, "td", "axis"), "div", "bar");
    };
    const band = (bar, kind, begin, end) => {
      const part = made(bar, "div", kind);
      part.style.left = `${share(begin)}%`;
      part.style.width = `${Math.max(0, share(end) - share(begin))}%`;
    };
    for (const [name, begin, end, sign] of each.phases) {
      const kind = { "members join": "join", "leader assigns": "leader" }[name] ?? "gap";
      band(line(name, sign + spanText(end - begin)), kind, begin, end);
    }
    if (each.unshown) line(`${each.unshown} members that joined earlier`, "");
    each.joins.forEach((join, place) => this.member(each, join, place, line, band, share));
  }

  member(each, [name, noticed, asked, answered, assigned, gone, ending], place, line, band, share) {
    const last = place === each.joins.length - 1 && asked !== null && !ending;
    const at = asked ?? gone, after = at === null ? "" : spanText(Math.max(0, at - each.began));
    const what = ending || (last && each.joins.length > 1 ? "joined last" : "joined");
    const bar = line(name, at === null ? what : `${what} after ${after}`);
    if (last) bar.closest("tr").className = "last";
    if (noticed !== null && asked !== null && noticed < asked) band(bar, "noticed", noticed, asked);
    const joined = answered ?? (asked === null ? null : Math.max(asked, each.joined));
    if (asked !== null && joined > asked) band(bar, "join", asked, joined);
    if (assigned !== null && joined !== null && assigned > joined) {
      band(bar, "leader", joined, assigned);
    }
    if (at === null) return;
    made(bar, "div", "dot", asked === null ? "✕" : "●").style.left = `${share(at)}%`;
  }

  // -- owners ---------------------------------------------------------------------------------------

  owners(each, place) {
    const all = this.data.changes(place), name = (owner) => this.data.owners[owner][0];
    if (!all.length) {
      made(this.root, "p", "known", "The sources do not tell the owners of the partitions.");
      return;
    }
    const changed = all.filter(({ before, after }) => before !== after);
    made(this.root, "p", "moves", this.summary(each, all));
    const pairs = new Map();
    for (const { partition, before, after } of changed) {
      const from = before === null ? "no owner" : name(before);
      const to = after === null ? "no owner yet" : name(after);
      const key = `${before} ${after}`, pair = pairs.get(key) ?? { from, to, names: [] };
      pair.names.push(this.data.partitions[partition]);
      pairs.set(key, pair);
    }
    const list = made(this.root, "ul", "pairs");
    const sorted = [...pairs.values()].sort((a, b) => b.names.length - a.names.length);
    for (const { from, to, names } of sorted.slice(0, MOST_PAIRS)) {
      made(list, "li", "", `${from} → ${to}: ${names.length} (${listed(names, 8)})`);
    }
    if (sorted.length > MOST_PAIRS) {
      made(list, "li", "", `and ${sorted.length - MOST_PAIRS} more pairs of members`);
    }
    this.matrix = new MoveMatrix(this.root, this.data, all);
  }

  /** "kept 20, moved 12, fewest possible 3". */
  summary(each, all) {
    const count = (test) => all.filter(test).length;
    const moved = count(({ before, after }) => before !== null && after !== null && before !== after);
    const parts = [["kept", count(({ before, after }) => before === after)]];
    parts.push(["moved", each.moved ?? moved], ["fewest possible", this.fewest(each, all)]);
    const first = count(({ before }) => before === null), none = count(({ after }) => after === null);
    if (first) parts.push(["with a first owner", first]);
    if (none) parts.push(["given up and without an owner yet", none]);
    return `Partitions: ${parts.map(([word, number]) => `${word} ${number}`).join(", ")}.`;
  }

  /** The fewest moves to a balanced plan, if the source tells them, or else to the present loads. */
  fewest(each, all) {
    if (Number.isInteger(each.moved) && Number.isInteger(each.needless)) return each.moved - each.needless;
    const kept = new Map(), wanted = new Map();
    for (const { before, after } of all) {
      if (after === null) continue;
      if (before !== null) kept.set(before, (kept.get(before) ?? 0) + 1);
      wanted.set(after, (wanted.get(after) ?? 0) + 1);
    }
    let found = 0;
    for (const [owner, held] of kept) found += Math.max(0, held - (wanted.get(owner) ?? 0));
    return found;
  }
}
