// Small pieces of interface. Everything that comes from outside becomes text, never markup.

export function h(tag, props, ...children) {
  const svg = SVG_TAGS.has(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.setAttribute("class", value);
    else if (name === "value" && !svg) made.value = value;
    else if (name === "checked") made.checked = value;
    else if (name === "width" && !svg) made.style.width = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}
const SVG_TAGS = new Set(["svg", "path", "line", "text", "rect", "g", "marker", "defs", "title", "polyline"]);

export const clear = (node, ...children) => { node.replaceChildren(...children.flat(Infinity).filter(Boolean)); return node; };
let counter = 0;
export const freshId = () => `id${++counter}`;

// --- words for numbers

const number = new Intl.NumberFormat("en");
export const count = value => value === undefined || value === null ? "–" : number.format(value);
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toFixed(1) + " G";
  if (size >= 1e6) return (value / 1e6).toFixed(1) + " M";
  if (size >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return size >= 100 || Number.isInteger(value) ? number.format(Math.round(value)) : value.toFixed(1);
}
export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(value) < 1024) return (unit === "B" ? Math.round(value) : value.toFixed(1)) + " " + unit;
    value /= 1024;
  }
  return value.toFixed(1) + " TiB";
}
export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}
export const ago = ms => ms ? `${span(Math.max(0, Date.now() - ms))} ago` : "never";
export const clock = ms => {
  const at = new Date(ms), pad = (n, w = 2) => String(n).padStart(w, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
};

// --- pieces

export const head = (title, about, ...actions) => h("div", { class: "head" },
  h("div", null, h("h1", null, title), about && h("p", null, about)),
  actions.length ? h("div", { class: "row" }, actions) : null);

export const card = (title, ...children) => h("section", { class: "card" }, title && h("header", null, h("h2", null, title)), children);

export const tile = (label, value, note) => h("div", { class: "card tile" },
  h("span", { class: "label" }, label), h("span", { class: "value" }, value), h("span", { class: "note" }, note || ""));

export const chip = (words, kind = "") => h("span", { class: `chip ${kind}` }, words);

export const empty = (title, words, code, ...actions) => h("div", { class: "empty" },
  h("strong", null, title), words && h("span", null, words), code && h("pre", { tabindex: "0" }, code), actions);

export const skeleton = (lines = 4) => h("div", { class: "card", "aria-busy": "true", "aria-label": "Loading" },
  Array.from({ length: lines }, (_, i) => h("div", { class: "skeleton", width: `${90 - i * 12}%` })));

export const problem = error => h("div", { class: "problem", role: "alert" }, error.message || String(error));

// columns: [{ title, cell(row), num, sort(row), class }]
export function table(caption, columns, rows, { sortBy = null, descending = false, onSort = null } = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "sr" }, caption),
      h("thead", null, h("tr", null, columns.map((column, at) => h("th", {
        scope: "col", class: column.num ? "num" : "",
        "aria-sort": sortBy === at ? (descending ? "descending" : "ascending") : null,
      }, column.sort && onSort ? h("button", { class: "sort", type: "button", onclick: () => onSort(at) },
        column.title, sortBy === at ? (descending ? " ↓" : " ↑") : "") : column.title || h("span", { class: "sr" }, "Actions"))))),
      h("tbody", null, rows.map(row => h("tr", null, columns.map(column => h("td", {
        class: [column.num ? "num" : "", column.class || ""].join(" ").trim() || null }, column.cell(row))))))));
}

export function field(label, control, hint) {
  const id = control.id || (control.id = freshId());
  return h("div", { class: "field" }, h("label", { for: id }, label, hint && h("span", { class: "hint" }, " ", hint)), control);
}
export function check(label, on) {
  const box = h("input", { type: "checkbox", checked: on });
  const made = h("label", { class: "check" }, box, label);
  made.box = box;
  return made;
}
export const select = (options, value) => h("select", null, options.map(each => {
  const [key, words] = Array.isArray(each) ? each : [each, each];
  const made = h("option", null, words); made.value = key;
  if (key === value) made.selected = true;
  return made;
}));
export const button = (words, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, words);

export function toast(words, bad = false) {
  const made = h("div", { class: bad ? "toast bad" : "toast" }, words);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), bad ? 9000 : 4000);
}

export async function copy(words, said = "Copied") {
  try { await navigator.clipboard.writeText(words); toast(said); }
  catch {
    const box = h("textarea", { class: "sr", "aria-hidden": "true" }); box.value = words;
    document.body.append(box); box.select(); document.execCommand("copy"); box.remove(); toast(said);
  }
}

// A dialog with a form; ``act`` is called with it and may throw what is then shown.
export function dialog(title, content, label, act, { danger = false } = {}) {
  return new Promise(done => {
    const id = freshId(), wrong = h("div");
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
    const form = h("form", { method: "dialog" }, h("h2", { id }, title), content, wrong,
      h("div", { class: "row" }, button("Cancel", () => box.close()), go));
    const box = h("dialog", { "aria-labelledby": id }, form);
    let result = null;
    form.addEventListener("submit", async event => {
      event.preventDefault();
      if (go.disabled) return;
      go.disabled = true;
      try { result = (await act(form)) ?? true; box.close(); }
      catch (error) { clear(wrong, problem(error)); go.disabled = false; }
    });
    box.addEventListener("close", () => { box.remove(); done(result); });
    document.body.append(box);
    box.showModal();
    form.go = go;
    const first = form.querySelector("input, textarea, select");
    if (first) first.focus();
    if (content.watch) content.watch(form);
  });
}

// The name must be typed before anything is destroyed.
export function confirmTyped(title, words, name, label, act) {
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const content = h("div", { class: "stack" }, h("p", null, words),
    field(h("span", null, "Type ", h("code", null, name), " to confirm"), typed));
  content.watch = form => {
    form.go.disabled = true;
    typed.addEventListener("input", () => { form.go.disabled = typed.value !== name; });
  };
  return dialog(title, content, label, act, { danger: true });
}

export const tabs = (label, entries, current) => h("nav", { class: "tabs", "aria-label": label },
  entries.map(([key, words, href]) => h("a", { href, "aria-current": key === current ? "page" : null }, words)));

export const facts = pairs => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) =>
  [h("dt", null, name), h("dd", null, value)]));
