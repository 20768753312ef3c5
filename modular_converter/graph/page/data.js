// The data of the page: models, edges, and the ways between them.

const source = JSON.parse(document.getElementById("data").textContent);

const models = source.models.map(([name, modular, written, generated, depth], index) => ({
  index,
  name,
  modular,
  written,
  generated: generated.map(([file, lines]) => ({ file, lines })),
  given: generated.reduce((sum, [, lines]) => sum + lines, 0),
  depth,
  parents: [],
  heirs: [],
}));

for (const [heir, parent, classes, things] of source.edges) {
  const edge = {
    heir: models[heir],
    parent: models[parent],
    classes: classes.map(([name, line, from, file]) => ({ name, line, from, file: source.files[file] })),
    things: things.map(([name, kind, file]) => ({ name, kind, file: source.files[file] })),
  };
  edge.heir.parents.push(edge);
  edge.parent.heirs.push(edge);
}

const byName = new Map(models.map((model) => [model.name, model]));
const isHeir = (edge) => edge.heir;
const isParent = (edge) => edge.parent;

/** Every model that can be reached, nearest first: model -> { steps, via }, where `via` is the model before it. */
function reach(start, side, end) {
  const found = new Map([[start, { steps: 0, via: null }]]);
  for (const [model, { steps }] of found) {
    for (const edge of model[side]) {
      const next = end(edge);
      if (!found.has(next)) found.set(next, { steps: steps + 1, via: model });
    }
  }
  found.delete(start);
  return found;
}

const ancestorsOf = (model) => reach(model, "parents", isParent);
const heirsOf = (model) => reach(model, "heirs", isHeir);

for (const model of models) {
  model.saved = model.generated.length ? model.given - model.written : null;
  model.heirCount = heirsOf(model).size;
  model.ancestorCount = ancestorsOf(model).size;
  model.parents.sort((a, b) => b.classes.length - a.classes.length || compare(a.parent.name, b.parent.name));
  model.heirs.sort((a, b) => b.classes.length - a.classes.length || compare(a.heir.name, b.heir.name));
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The edge from an heir to its direct parent, if there is one. */
function edgeBetween(heir, parent) {
  return heir.parents.find((edge) => edge.parent === parent);
}

const number = new Intl.NumberFormat("en");
const count = (amount, one, many = `${one}s`) => `${number.format(amount)} ${amount === 1 ? one : many}`;

/** What an edge carries, in words. */
function taken(edge) {
  const parts = [];
  if (edge.classes.length) parts.push(count(edge.classes.length, "class", "classes"));
  if (edge.things.length) parts.push(`${count(edge.things.length, "name")} imported`);
  return parts.join(", ") || "its file could not be read";
}

/** How a thing is taken that is not inherited from, in words. */
const howTaken = (thing) => (thing.kind === "unknown" ? "imported by name" : `${thing.kind} imported by name`);

/** Lines of a model, in words. */
function linesTold(model) {
  if (!model.modular.length) return "Written by hand";
  if (model.saved === null) return `${count(model.written, "line")} in the modular file, not generated yet`;
  return `${number.format(model.written)} lines written, ${number.format(model.given)} generated`;
}
