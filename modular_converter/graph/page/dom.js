// Making elements, curves and the tooltip. Names come from files: they only ever become text.

const byId = (id) => document.getElementById(id);
const addressOf = (model) => `#model=${encodeURIComponent(model.name)}`;

/** An element with properties, `data-` and `aria-` attributes, and children (text or elements). */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "scope") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A name as text that may break between its words. */
function breakable(name) {
  const parts = name.split(/(?<=[a-z0-9])(?=[A-Z])|(?<=_)(?=[^_])/);
  return parts.flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
}

const code = (name) => make("code", {}, ...breakable(name));

const SVG = "http://www.w3.org/2000/svg";

/** The sheet over a container on which its curves are drawn. */
function sheet() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "curves");
  svg.setAttribute("aria-hidden", "true");
  return svg;
}

/** Draw a curve; `from` and `to` are points, `bend` is "x" or "y": the direction in which it leaves. */
function curve(svg, from, to, bend, style, width = 1.25) {
  const path = document.createElementNS(SVG, "path");
  const [x1, y1] = from;
  const [x2, y2] = to;
  const middle = bend === "x" ? (x1 + x2) / 2 : (y1 + y2) / 2;
  const turns = bend === "x" ? `${middle} ${y1} ${middle} ${y2}` : `${x1} ${middle} ${x2} ${middle}`;
  path.setAttribute("d", `M${x1} ${y1}C${turns} ${x2} ${y2}`);
  path.setAttribute("class", style);
  path.setAttribute("stroke-width", width);
  svg.append(path);
  return path;
}

/** The box of an element within a container, in the container's own pixels. */
function boxIn(element, container) {
  const inner = element.getBoundingClientRect();
  const outer = container.getBoundingClientRect();
  const left = inner.left - outer.left;
  const top = inner.top - outer.top;
  const [right, bottom] = [left + inner.width, top + inner.height];
  return { left, top, right, bottom, x: (left + right) / 2, y: (top + bottom) / 2 };
}

const tip = byId("tip");

/** Show what an element is about beside it; the text is also what a screen reader describes it with. */
function showTip(anchor, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  anchor.setAttribute("aria-describedby", "tip");
  const box = anchor.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const below = box.bottom + 8 + own.height < innerHeight;
  const left = Math.min(Math.max(8, box.left), Math.max(8, document.documentElement.clientWidth - own.width - 8));
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - own.height - 8)}px`;
}

function hideTip() {
  tip.hidden = true;
  for (const anchor of document.querySelectorAll("[aria-describedby=tip]")) anchor.removeAttribute("aria-describedby");
}

/** Call back when an element within a container is hovered or gets the focus, and when none is any more. */
function onPoint(container, selector, enter, leave) {
  let current = null;
  const change = (target) => {
    const element = target instanceof Element ? target.closest(selector) : null;
    if (element === current) return;
    if (current) leave(current);
    current = element;
    if (element) enter(element);
  };
  container.addEventListener("pointerover", (event) => event.pointerType !== "touch" && change(event.target));
  container.addEventListener("pointerleave", () => change(null));
  container.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && change(event.target));
  container.addEventListener("focusout", () => change(null));
}

/** The element nearest to `from` in the direction of an arrow key, if there is one. */
function neighbourOf(from, elements, key) {
  const start = from.getBoundingClientRect();
  const along = key === "ArrowLeft" || key === "ArrowRight" ? "x" : "y";
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  const middle = (box) => ({ x: box.left + box.width / 2, y: box.top + box.height / 2 });
  const here = middle(start);
  let best = null;
  let least = Infinity;
  for (const element of elements) {
    const box = element.getBoundingClientRect();
    const there = middle(box);
    const ahead = sign * (there[along] - here[along]);
    const clear = along === "x" ? sign * (there.x - here.x) > 4 : Math.abs(there.y - here.y) > start.height / 2;
    if (element === from || !box.width || ahead <= 0 || !clear) continue;
    const aside = Math.abs(along === "x" ? there.y - here.y : there.x - here.x);
    const distance = ahead + 3 * aside;
    if (distance < least) [best, least] = [element, distance];
  }
  return best;
}

/** Let one of many elements be in the tab order; arrow keys move among them. */
function rove(container, selector) {
  const all = () => [...container.querySelectorAll(selector)].filter((element) => element.offsetParent);
  container.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    for (const element of container.querySelectorAll(`:is(${selector})[tabindex="0"]`)) element.tabIndex = -1;
    event.target.tabIndex = 0;
  });
  container.addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow") || event.altKey || event.ctrlKey || event.metaKey) return;
    if (!event.target.matches(selector)) return;
    const next = neighbourOf(event.target, all(), event.key);
    if (next) next.focus();
    event.preventDefault();
  });
}
