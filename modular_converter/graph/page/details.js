// What stands around the graph of one model: its name and lines above, class by class below.

function portrait(model) {
  const back = make("a", { className: "back", href: "#" }, "← All models");
  const title = make("h2", { id: "focus-title" }, ...breakable(model.name));
  const files = model.modular.map((file) => make("code", {}, file));
  return [back, make("div", { className: "title" }, title, ...files), facts(model)];
}

function facts(model) {
  const row = make("dl", { className: "facts" });
  const add = (style, value, name, more) => {
    const told = make("dd", {}, value, make("small", {}, more));
    row.append(make("div", { className: style }, make("dt", {}, name), told));
  };
  if (model.saved !== null) {
    add("saved", number.format(model.saved), "Lines saved", linesTold(model));
  } else {
    const isModular = model.modular.length > 0;
    const told = isModular ? `${count(model.written, "line")} in the modular file` : "no modular file";
    add("", isModular ? "Not yet" : "By hand", isModular ? "Generated" : "Written", told);
  }
  add("is-ancestor", String(model.ancestorCount), "Ancestors", `${model.parents.length} direct`);
  add("is-heir", String(model.heirCount), "Heirs", `${model.heirs.length} direct`);
  add("", String(model.depth), "Generation", model.depth ? "steps to the oldest ancestor" : "inherits from nothing");
  return row;
}

function details(model) {
  const box = make("div", { className: "details" });
  if (model.parents.length) box.append(takes(model));
  if (model.heirs.length) box.append(gives(model));
  return box;
}

function takes(model) {
  const section = make("section", {}, make("h3", { className: "is-ancestor" }, "What it takes"));
  for (const edge of model.parents) {
    section.append(make("h4", {}, link(edge.parent), make("small", {}, taken(edge))), takenTable(edge));
  }
  return section;
}

/** What an edge carries, below the files that it comes from. */
function takenTable(edge) {
  const body = make("tbody", {});
  for (const file of new Set([...edge.classes, ...edge.things].map((one) => one.file))) {
    const heading = make("th", { scope: "colgroup", colSpan: 2 }, make("small", {}, `from ${file}`));
    body.append(make("tr", {}, heading));
    body.append(...edge.classes.filter((one) => one.file === file).map(classRow));
    body.append(...edge.things.filter((one) => one.file === file).map(thingRow));
  }
  return make("table", { className: "classes" }, body);
}

function classRow(one) {
  const line = make("small", {}, ` line ${one.line}`);
  const parent = make("td", {}, "←\u00a0", code(one.from));
  return make("tr", {}, make("td", {}, code(one.name), line), parent);
}

function thingRow(one) {
  const how = make("small", {}, howTaken(one));
  return make("tr", { className: "thing" }, make("td", {}, code(one.name)), make("td", {}, how));
}

/** The classes of a model that others inherit from, those with the most heirs first, and who they are. */
function gives(model) {
  const givenTo = new Map();
  const add = (name, file, heir, as) => {
    const key = `${file} ${name}`;
    if (!givenTo.has(key)) givenTo.set(key, { name, file, heirs: [] });
    givenTo.get(key).heirs.push({ heir, as });
  };
  for (const edge of model.heirs) {
    for (const one of edge.classes) add(one.from, one.file, edge.heir, one.name);
    for (const one of edge.things) add(one.name, one.file, edge.heir, howTaken(one));
  }
  const section = make("section", {}, make("h3", { className: "is-heir" }, "What it gives"));
  const users = (given) => new Set(given.heirs.map(({ heir }) => heir)).size;
  const sorted = [...givenTo.values()].sort((a, b) => users(b) - users(a) || compare(a.name, b.name));
  const most = Math.max(...sorted.map(users));
  for (const given of sorted) section.append(givenClass(given, users(given), most));
  return section;
}

function givenClass(given, users, most) {
  const fill = make("i", {});
  fill.style.width = `${Math.round((100 * users) / most)}%`;
  const summary = make(
    "summary",
    {},
    code(given.name),
    make("small", {}, given.file),
    make("span", { className: "meter" }, fill),
    make("b", {}, String(users)),
    make("span", { className: "unseen" }, users === 1 ? " heir" : " heirs"),
  );
  const fold = make("details", {}, summary);
  fold.addEventListener("toggle", () => {
    if (fold.childElementCount > 1) return;
    const items = given.heirs.map(({ heir, as }) => make("li", {}, link(heir), make("small", {}, ...breakable(as))));
    fold.append(make("ul", {}, ...items));
  });
  return fold;
}

function link(model) {
  return make("a", { href: addressOf(model) }, model.name);
}
