// All models at a glance: one band for each generation, names sized by heirs, and the curves of one model at a time.

const overview = byId("overview");
const chipOf = new Map();
const bands = make("div", { className: "bands" });
const bandCurves = sheet();
const LARGEST = 28;

function makeChip(model) {
  const share = Math.log2(1 + model.heirCount) / Math.log2(1 + mostHeirs);
  const chip = make("a", { className: "chip", href: addressOf(model), tabIndex: -1 }, model.name);
  chip.style.fontSize = `${(12 + (LARGEST - 12) * share ** 2).toFixed(1)}px`;
  chipOf.set(model, chip);
  return chip;
}

function bandTitle(depth, amount) {
  const told = depth === 0 ? "Inherits from nothing" : depth === 1 ? "Inherits from those" : "";
  return make(
    "div",
    { className: "band-title" },
    make("b", {}, String(depth)),
    make("span", {}, count(amount, "model")),
    told ? make("small", {}, told) : null,
  );
}

function drawOverview() {
  const byDepth = new Map();
  for (const model of models) byDepth.set(model.depth, [...(byDepth.get(model.depth) ?? []), model]);
  for (const depth of [...byDepth.keys()].sort((a, b) => a - b)) {
    const members = byDepth.get(depth).sort((a, b) => b.heirCount - a.heirCount || compare(a.name, b.name));
    const chips = make("div", { className: "chips" }, ...members.map(makeChip));
    bands.append(make("div", { className: "band" }, bandTitle(depth, members.length), chips));
  }
  bands.append(bandCurves);
  overview.append(
    make("h2", { id: "overview-title" }, "Every model, by generation"),
    make(
      "p",
      { className: "lead" },
      "A model stands below all that it inherits from; large names have many heirs. ",
      make(
        "span",
        { className: "pointing" },
        "Point at a name to see its ",
        make("b", { className: "is-ancestor" }, "ancestors"),
        " and its ",
        make("b", { className: "is-heir" }, "heirs"),
        ". ",
      ),
      "Open it for the classes.",
    ),
    bands,
  );
  const first = bands.querySelector("a");
  if (first) first.tabIndex = 0;
}

/** Fade all names but those that the search has found; null lights them all. */
function markFound(found) {
  bands.classList.toggle("searched", found !== null);
  for (const [model, chip] of chipOf) chip.classList.toggle("found", Boolean(found?.has(model)));
}

function modelOf(link) {
  return byName.get(decodeURIComponent(link.getAttribute("href").slice("#model=".length)));
}

/** Show the ancestors and heirs of one name; the tooltip only where the name itself is pointed at. */
function lightUp(chip, isTold = true) {
  const model = modelOf(chip);
  const ancestors = ancestorsOf(model);
  const heirs = heirsOf(model);
  bands.classList.add("lit");
  chip.classList.add("is-chosen");
  const mark = (found, style) => {
    for (const [other, { steps }] of found) {
      chipOf.get(other).classList.add(style);
      chipOf.get(other).classList.toggle("direct", steps === 1);
    }
  };
  mark(ancestors, "is-ancestor");
  mark(heirs, "is-heir");
  drawCurvesOf(model, chip);
  if (isTold) showTip(chip, ...summaryOf(model, ancestors, heirs));
}

function drawCurvesOf(model, chip) {
  const own = boxIn(chip, bands);
  for (const edge of model.parents) {
    const box = boxIn(chipOf.get(edge.parent), bands);
    curve(bandCurves, [own.x, own.top], [box.x, box.bottom], "y", "is-ancestor", 1.5);
  }
  for (const edge of model.heirs) {
    const box = boxIn(chipOf.get(edge.heir), bands);
    curve(bandCurves, [own.x, own.bottom], [box.x, box.top], "y", "is-heir", model.heirs.length > 40 ? 0.75 : 1.25);
  }
}

function summaryOf(model, ancestors, heirs) {
  return [
    make("b", {}, model.name),
    make("div", {}, linesTold(model) + (model.saved === null ? "" : `, ${number.format(model.saved)} saved`)),
    make("div", { className: "is-ancestor" }, `${count(ancestors.size, "ancestor")}, ${model.parents.length} direct`),
    make("div", { className: "is-heir" }, `${count(heirs.size, "heir")}, ${model.heirs.length} direct`),
  ];
}

function lightDown() {
  bands.classList.remove("lit");
  bandCurves.replaceChildren();
  for (const chip of chipOf.values()) chip.classList.remove("is-chosen", "is-ancestor", "is-heir", "direct");
  hideTip();
}

onPoint(bands, ".chip", (chip) => lightUp(chip), lightDown);
const chipOfRow = (row) => chipOf.get(modelOf(row.querySelector("a")));
onPoint(rows, "tr", (row) => !overview.hidden && lightUp(chipOfRow(row), false), lightDown);
rove(bands, ".chip");
