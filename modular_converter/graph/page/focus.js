// One model in the middle: ancestors on its left, heirs on its right, by the steps to them; below it, class by class.

const focus = byId("focus");
const SHOWN = 12;
const MOST_COLUMNS = 3;
const COLUMN_WIDTH = 180;
const MIDDLE_WIDTH = 180;
const MOST_IN_TIP = 14;
const WIDEST_CURVE = 3.5;
const opened = new Set();
let current = null;

/** How many columns each side gets, by what fits and by how far the ancestors and heirs reach. */
function room() {
  const isRow = getComputedStyle(graph).flexDirection === "row";
  const beside = Math.max(2, Math.floor((graph.clientWidth - MIDDLE_WIDTH) / COLUMN_WIDTH));
  const fitting = isRow ? beside : 2 * MOST_COLUMNS;
  const furthest = (found) => Math.min(MOST_COLUMNS, Math.max(0, ...[...found.values()].map(({ steps }) => steps)));
  const [left, right] = [furthest(ways.parents), furthest(ways.heirs)];
  const half = Math.floor(fitting / 2);
  return {
    parents: Math.min(left, Math.max(half, fitting - right)),
    heirs: Math.min(right, Math.max(half, fitting - left)),
  };
}

/** Models by steps, in a number of groups; the last holds all that are further away. */
function columnsOf(found, groups) {
  const columns = [];
  for (const [model, { steps }] of found) (columns[Math.min(steps, groups) - 1] ??= []).push(model);
  return columns;
}

function columnTitle(side, step, last) {
  const noun = side === "heirs" ? "heirs" : "ancestors";
  if (step === 1) return last > 1 ? `All ${noun}` : `Direct ${noun}`;
  return last > step ? `${step} to ${last} steps` : `${step} steps`;
}

/** One column; `last` is the number of steps to the furthest of its members. */
function makeColumn(side, step, members, last) {
  const style = side === "heirs" ? "is-heir" : "is-ancestor";
  const title = columnTitle(side, step, last);
  const byClasses = side === "parents" && step === 1 && last === 1;
  const value = (model) => (byClasses ? (edgeBetween(current, model)?.classes.length ?? 0) : model.heirCount);
  const order = (a, b) => value(b) - value(a) || b.heirCount - a.heirCount || compare(a.name, b.name);
  const sorted = [...members].sort(order);
  const isOpen = opened.has(title);
  const shown = isOpen || sorted.length <= SHOWN + 2 ? sorted : sorted.slice(0, SHOWN);
  const heading = make(
    "div",
    { className: "column-title" },
    make("h3", {}, title, make("b", {}, String(members.length))),
    make("small", {}, byClasses ? "classes taken" : "heirs of its own"),
  );
  const column = make(
    "div",
    { className: `column ${style}`, role: "group", "aria-label": `${title}: ${members.length}` },
    heading,
    ...shown.map((model) => makeCard(model, style, value(model), byClasses)),
  );
  if (sorted.length > SHOWN + 2) column.append(moreButton(title, isOpen, sorted.length - SHOWN));
  return column;
}

function moreButton(title, isOpen, hiddenCards) {
  const text = isOpen ? "Show fewer" : `${hiddenCards} more`;
  const button = make("button", { type: "button", className: "more", "aria-expanded": String(isOpen) }, text);
  button.dataset.column = title;
  button.addEventListener("click", () => {
    if (isOpen) opened.delete(title);
    else opened.add(title);
    drawGraph();
    const again = [...graph.querySelectorAll(".more")].find((other) => other.dataset.column === title);
    again?.focus({ preventScroll: !isOpen });
  });
  return button;
}

function makeCard(model, style, value, byClasses) {
  const told = byClasses ? count(value, "class", "classes") : count(value, "heir");
  return make(
    "a",
    { className: `card ${style}`, href: addressOf(model), tabIndex: -1, "aria-label": `${model.name}, ${told}` },
    make("span", {}, model.name),
    make("em", {}, value ? String(value) : ""),
  );
}

const graph = make("div", { className: "graph" });
const graphCurves = sheet();
let cards = new Map();
let columns = { parents: 0, heirs: 0 };
let ways = { parents: new Map(), heirs: new Map() };

function drawGraph() {
  ways = { parents: ancestorsOf(current), heirs: heirsOf(current) };
  columns = room();
  const furthest = (side, members) => Math.max(...members.map((model) => ways[side].get(model).steps));
  const build = (side) =>
    columnsOf(ways[side], columns[side]).map((members, place) =>
      makeColumn(side, place + 1, members, furthest(side, members)),
    );
  const middle = make(
    "div",
    { className: "middle" },
    make("strong", {}, ...breakable(current.name)),
    make("span", {}, current.saved === null ? linesTold(current) : `${number.format(current.saved)} lines saved`),
  );
  graph.classList.toggle("long", opened.size > 0);
  graph.replaceChildren(graphCurves, ...build("parents").reverse(), middle, ...build("heirs"));
  cards = new Map([...graph.querySelectorAll(".card")].map((card) => [modelOf(card), card]));
  const first = cards.values().next().value;
  if (first) first.tabIndex = 0;
  cards.set(current, middle);
  drawCurves();
}

/** Draw the curves between neighbouring columns; those of `pointed` and of its way to the middle stand out. */
function drawCurves(pointed = null) {
  graphCurves.replaceChildren();
  if (getComputedStyle(graph).flexDirection !== "row") return;
  const way = new Set(pointed ? wayTo(pointed) : []);
  for (const [side, end] of [["parents", isParent], ["heirs", isHeir]]) {
    const place = (model) => (model === current ? 0 : Math.min(ways[side].get(model).steps, columns[side]));
    for (const model of [current, ...ways[side].keys()]) {
      for (const edge of model[side]) {
        const next = end(edge);
        if (next === current || !cards.has(model) || !cards.has(next) || place(next) !== place(model) + 1) continue;
        const isPointed = (way.has(model) && way.has(next)) || model === pointed || next === pointed;
        const isBright = pointed ? isPointed : model === current;
        drawEdge(edge, `${side === "heirs" ? "is-heir" : "is-ancestor"}${isBright ? "" : " faint"}`);
      }
    }
  }
}

function drawEdge(edge, style) {
  const from = boxIn(cards.get(edge.parent), graph);
  const to = boxIn(cards.get(edge.heir), graph);
  const width = Math.min(WIDEST_CURVE, 1 + edge.classes.length / 6);
  curve(graphCurves, [from.right, from.y], [to.left, to.y], "x", style, width);
}

/** The models from the middle to another one, by the shortest way. */
function wayTo(model) {
  const found = ways.heirs.has(model) ? ways.heirs : ways.parents;
  const way = [];
  for (let here = model; here && here !== current; here = found.get(here)?.via) way.unshift(here);
  return [current, ...way];
}

function pointAt(card) {
  const model = modelOf(card);
  const way = wayTo(model);
  for (const one of way) cards.get(one)?.classList.add("on-way");
  drawCurves(model);
  const edge = edgeBetween(model, current) ?? edgeBetween(current, model);
  const names = ways.heirs.has(model) ? way.map((one) => one.name).reverse() : way.map((one) => one.name);
  const lines = [make("b", {}, edge ? `${edge.heir.name} inherits from ${edge.parent.name}` : names.join(" ← "))];
  if (edge) lines.push(...edgeLines(edge));
  else lines.push(make("div", {}, `${names.length - 1} steps; ${linesTold(model).toLowerCase()}`));
  showTip(card, ...lines);
}

/** The classes of an edge, below the file that they come from. */
function edgeLines(edge) {
  const all = [
    ...edge.classes.map((one) => [one.file, `${one.name} ← ${one.from}`]),
    ...edge.things.map((one) => [one.file, `${one.name}, ${howTaken(one)}`]),
  ];
  const lines = [];
  let file = null;
  for (const [from, text] of all.slice(0, MOST_IN_TIP)) {
    if (from !== file) lines.push(make("small", {}, `from ${(file = from)}`));
    lines.push(code(text));
  }
  if (all.length > MOST_IN_TIP) lines.push(make("small", {}, `and ${all.length - MOST_IN_TIP} more`));
  return lines.length ? lines : [make("div", {}, taken(edge))];
}

function pointAway() {
  for (const card of cards.values()) card.classList.remove("on-way");
  drawCurves();
  hideTip();
}

onPoint(graph, ".card", pointAt, pointAway);
rove(graph, ".card");

function drawFocus(model) {
  if (model !== current) opened.clear();
  current = model;
  cards = new Map(); // a card that loses the focus while it is replaced still asks for curves
  focus.replaceChildren(...portrait(model), graph, details(model));
  drawGraph();
}

function redraw() {
  if (!focus.hidden) requestAnimationFrame(() => drawCurves());
}

addEventListener("resize", redraw);
byId("main").addEventListener("scroll", redraw, { passive: true });
