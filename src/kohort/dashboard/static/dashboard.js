"use strict";
/* The page of the dashboard: the list of groups, and one group live.

   In: the events of /events. Every text of a group is set as text, never as HTML. */

const MOST_ROWS = 200, BARS = "·▁▂▃▄▅▆▇█";
const find = (selector) => document.querySelector(selector);
const rows = new Map();
let stream = null, timeline = null, shown = null;
const whatif = new WhatIf(find("#whatif"), () => chosen());
let tried = { state: "none", group: "" };

function chosen() {
  return new URLSearchParams(location.hash.slice(1)).get("group") ?? "";
}

/** A row of a table; a cell is a text or an element. */
function line(cells, ...narrow) {
  const row = document.createElement("tr");
  cells.forEach((cell, place) => {
    const made = row.insertCell();
    if (!narrow.includes(place)) made.className = "narrow";
    made.append(cell ?? "");
  });
  return row;
}

function count(value) {
  return value === null ? "" : value.toLocaleString("en");
}

/** Rebalances in each minute as bars of text. */
function heat(minutes) {
  const most = Math.max(1, ...minutes), made = document.createElement("span");
  made.className = "heat";
  made.textContent = minutes
    .map((n) => BARS[n ? Math.max(1, Math.round((n / most) * 8)) : 0]).join("");
  made.title = `rebalances in each of the last 60 minutes, at most ${most}`;
  return made;
}

function drawGroups() {
  const body = find("#groups tbody"), focused = document.activeElement?.dataset?.group;
  const sorted = [...rows.values()].sort(
    (a, b) => b.cost - a.cost || b.rebalances - a.rebalances || a.group.localeCompare(b.group),
  );
  body.replaceChildren(...sorted.map((each) => {
    const link = document.createElement("a");
    link.href = `#${new URLSearchParams({ group: each.group })}`;
    link.textContent = each.group || "(no name)";
    link.dataset.group = each.group;
    const when = each.last === null ? "" : new Date(each.last * 1000).toISOString().slice(11, 19);
    const row = line([
      link, each.state, count(each.members), count(each.lag), count(each.rebalances),
      heat(each.minutes), count(each.cost), when && `${when} ${each.cause}`,
    ], 0, 7);
    if (each.group === chosen()) row.className = "chosen";
    return row;
  }));
  find("#none").hidden = rows.size > 0;
  for (const link of body.querySelectorAll("a")) {
    if (focused !== undefined && link.dataset.group === focused) link.focus();
  }
}

function takeGroups(event) {
  const values = JSON.parse(event.data);
  find("#source").textContent = values.source;
  find("#remarks").replaceChildren(...values.remarks.map((text) => note(text)));
  values.gone.forEach((name) => rows.delete(name));
  values.rows.forEach((row) => rows.set(row.group, row));
  drawGroups();
}

function note(...parts) {
  const made = document.createElement("div");
  made.className = "finding";
  made.append(...parts);
  return made;
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

function takeGroup(event) {
  const values = JSON.parse(event.data);
  if (values.group !== chosen()) return;
  find("#group").hidden = false;
  find("#group h2").textContent = values.group;
  find("#headline").textContent = values.headline;
  find("#numbers").replaceChildren(...values.numbers.map(([name, text, known]) => {
    const box = document.createElement("div"), told = element("dd", "", `${text} `);
    told.append(element("span", "known", known));
    box.append(element("dt", "", name), told);
    return box;
  }));
  if (shown !== values.group) {
    shown = values.group;
    find("#timeline").replaceChildren();
    timeline = new Timeline(find("#timeline"), values.picture, (place) => markRow(find(`#r${place}`)));
    whatif.take(tried);
  } else timeline.take(values.picture);
  find("#findings").replaceChildren(...values.findings.map((each) => note(
    element("b", "", each.name), " ", element("span", "known", each.known),
    element("div", "", each.says), element("div", "", each.advice),
    element("div", "", each.tried && `Tried: ${each.tried}`),
    element("div", "proof", each.proof),
  )));
  drawRebalances();
  find("#present").hidden = values.members.length === 0;
  find("#members tbody").replaceChildren(...values.members.map((each) => line(
    [each.instance || each.member, each.client, each.host, count(each.partitions), count(each.lag)],
    0,
  )));
}

/** A button with the time of a rebalance; it shows the rebalance in detail. */
function opener(each, place) {
  const button = element("button", "link", timeline.data.clock(each.began, 1));
  button.type = "button";
  button.title = "In detail";
  button.addEventListener("click", () => {
    timeline.choose(place);
    timeline.detail.root.scrollIntoView({ block: "center" });
  });
  return button;
}

/** The last rebalances, the newest first. */
function drawRebalances() {
  const all = timeline.data.rebalances, body = find("#rebalances tbody");
  const first = Math.max(0, all.length - MOST_ROWS);
  const drawn = new Map([...body.rows].map((row) => [row.dataset.told, row]));
  const wanted = all.slice(first).map((each, place) => {
    const told = `${first + place} ${each.told}`;
    const row = drawn.get(told) ?? line([opener(each, first + place), ...each.cells], 2, 3, 5);
    row.dataset.told = told;
    row.id = `r${first + place}`;
    return row;
  }).reverse();
  const same = wanted.length === body.rows.length
    && wanted.every((row, place) => row === body.rows[place]);
  if (!same) body.replaceChildren(...wanted);
}

function connect() {
  stream?.close();
  shown = null;
  find("#group").hidden = true;
  drawGroups();
  stream = new EventSource(`/events?${new URLSearchParams({ group: chosen() })}`);
  stream.addEventListener("open", () => {
    rows.clear();
    shown = null;
    find("#connection").hidden = true;
  });
  stream.addEventListener("error", () => { find("#connection").hidden = false; });
  stream.addEventListener("groups", takeGroups);
  stream.addEventListener("group", takeGroup);
  stream.addEventListener("what-if", (event) => {
    tried = JSON.parse(event.data);
    if (shown !== null) whatif.take(tried);
  });
  stream.addEventListener("missing", () => { find("#group").hidden = true; });
}

addEventListener("hashchange", connect);
connect();
