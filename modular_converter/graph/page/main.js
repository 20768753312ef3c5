// What is shown is what the address says: `#model=NAME`, or the overview.

function chosenByAddress() {
  const match = /^#model=(.*)$/.exec(location.hash);
  if (!match) return null;
  try {
    return decodeURIComponent(match[1]);
  } catch {
    return match[1];
  }
}

/** The model that the keyboard comes back from, so that it goes on at its name. */
let returning = null;

function show() {
  const name = chosenByAddress();
  const model = byName.get(name) ?? null;
  hideTip();
  lightDown();
  overview.hidden = model !== null;
  focus.hidden = model === null;
  document.body.classList.remove("searching");
  document.title = model ? `${model.name} · ${source.title}` : `${source.title}: who inherits from whom`;
  if (model) drawFocus(model);
  markRow(model);
  byId("main").scrollTop = 0;
  if (model) scrollTo(0, 0);
  if (returning && !model) chipOf.get(returning).focus();
  returning = null;
  const missing = name !== null && !model;
  byId("status").classList.toggle("unseen", !missing);
  byId("status").textContent = missing ? `There is no model called ${name}.` : (model?.name ?? "");
}

function tellTotals() {
  const written = models.filter((model) => model.modular.length).length;
  const saved = models.reduce((sum, model) => sum + (model.saved ?? 0), 0);
  const part = source.selected.length ? `Only ${source.selected.join(", ")}, with ancestors and heirs: ` : "";
  const from = `${number.format(written)} from modular files`;
  const totals = [count(models.length, "model"), from, `${count(saved, "line")} saved`];
  byId("home").textContent = source.title;
  byId("totals").textContent = part + totals.join(", ");
}

function stepBack() {
  if (!tip.hidden) hideTip();
  if (search.value) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
    search.focus();
  } else if (document.body.classList.contains("searching")) {
    document.body.classList.remove("searching");
    search.blur();
  } else if (!focus.hidden) {
    returning = current;
    location.hash = "";
  } else {
    document.activeElement?.blur();
  }
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "/" && event.target !== search) {
    search.focus();
    search.select();
    event.preventDefault();
  } else if (event.key === "Escape") {
    stepBack();
    event.preventDefault();
  } else if (event.key.startsWith("Arrow") && [document.body, byId("main")].includes(document.activeElement)) {
    const start = focus.hidden ? bands.querySelector(".chip") : startInGraph(event.key);
    start?.focus();
    event.preventDefault();
  }
});

/** The card to which an arrow key leads from the middle. */
function startInGraph(key) {
  return neighbourOf(cards.get(current), [...graph.querySelectorAll(".card")], key);
}

search.addEventListener("focus", () => document.body.classList.add("searching"));
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest(".side")) document.body.classList.remove("searching");
});
addEventListener("hashchange", show);

tellTotals();
drawOverview();
drawList();
if (!location.hash && source.selected.length) {
  history.replaceState(null, "", addressOf(byName.get(source.selected[0])));
}
show();
