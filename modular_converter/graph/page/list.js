// The list of all models beside the graph: filtered by the search, sorted by its columns.

const search = byId("search");
const rows = byId("rows");
const sorting = { key: "heirs", down: true };

const mostHeirs = Math.max(1, ...models.map((model) => model.heirCount));
const mostSaved = Math.max(1, ...models.map((model) => model.saved ?? 0));

const rowOf = new Map(models.map((model) => [model, makeRow(model)]));

function makeRow(model) {
  const link = make("a", { href: addressOf(model), tabIndex: -1, title: model.name }, model.name);
  const saved = model.saved === null ? "–" : number.format(model.saved);
  const told = model.saved === null ? linesTold(model) : `${linesTold(model)}, ${saved} saved`;
  return make(
    "tr",
    { className: model.modular.length ? "" : "by-hand" },
    make("th", { scope: "row" }, link),
    bar(number.format(model.heirCount), model.heirCount / mostHeirs, "heirs", `${model.heirs.length} direct`),
    bar(saved, (model.saved ?? 0) / mostSaved, "saved", told),
  );
}

function bar(text, share, kind, title) {
  const fill = make("i", { className: kind });
  fill.style.width = `${Math.round(100 * Math.max(0, share))}%`;
  return make("td", { title }, text, fill);
}

/** The models that the search lets through, in the order of the list. */
function listed() {
  const wanted = search.value.trim().toLowerCase().replaceAll("-", "_");
  const place = (model) => model.name.toLowerCase().indexOf(wanted);
  const values = { name: () => 0, heirs: (model) => model.heirCount, saved: (model) => model.saved ?? -Infinity };
  const value = values[sorting.key];
  const sign = sorting.down ? -1 : 1;
  return models
    .filter((model) => place(model) >= 0)
    .sort(
      (a, b) =>
        (wanted && (b.name === wanted) - (a.name === wanted)) ||
        (wanted && (place(b) === 0) - (place(a) === 0)) ||
        (value(a) === value(b) ? 0 : sign * (value(a) < value(b) ? -1 : 1)) ||
        (sorting.key === "name" ? sign : 1) * compare(a.name, b.name),
    );
}

function drawList() {
  const shown = listed();
  rows.replaceChildren(...shown.map((model) => rowOf.get(model)));
  byId("nothing").hidden = shown.length > 0;
  const first = rows.querySelector("a");
  if (first && !rows.querySelector('a[tabindex="0"]')) first.tabIndex = 0;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const order = button.dataset.sort === sorting.key ? (sorting.down ? "descending" : "ascending") : "none";
    button.closest("th").setAttribute("aria-sort", order);
  }
  return shown;
}

/** Mark the chosen model in the list, and bring it into view. */
function markRow(model) {
  for (const link of rows.querySelectorAll("[aria-current]")) link.removeAttribute("aria-current");
  for (const [other, row] of rowOf) row.classList.toggle("chosen", other === model);
  if (!model) return;
  const row = rowOf.get(model);
  row.querySelector("a").setAttribute("aria-current", "page");
  const pane = document.querySelector(".scroll");
  const [box, around] = [row.getBoundingClientRect(), pane.getBoundingClientRect()];
  if (box.height && (box.top < around.top + 32 || box.bottom > around.bottom)) {
    pane.scrollTop += box.top - around.top - pane.clientHeight / 3;
  }
}

function stepInList(link, by) {
  const links = [...rows.querySelectorAll("a")];
  const next = links.indexOf(link) + by;
  if (next < 0) search.focus();
  else links[Math.min(next, links.length - 1)]?.focus();
}

search.addEventListener("input", () => {
  const shown = drawList();
  document.querySelector(".scroll").scrollTop = 0;
  byId("status").textContent = `${shown.length} of ${count(models.length, "model")}`;
  markFound(search.value.trim() ? new Set(shown) : null);
});

search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    rows.querySelector("a")?.click();
    byId("main").focus();
  }
  if (event.key !== "ArrowDown") return;
  rows.querySelector("a")?.focus();
  event.preventDefault();
});

rows.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  stepInList(event.target, event.key === "ArrowDown" ? 1 : -1);
  event.preventDefault();
});

rows.addEventListener("focusin", (event) => {
  for (const link of rows.querySelectorAll('a[tabindex="0"]')) link.tabIndex = -1;
  event.target.tabIndex = 0;
});

for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    const key = button.dataset.sort;
    sorting.down = sorting.key === key ? !sorting.down : key !== "name";
    sorting.key = key;
    drawList();
  });
}
