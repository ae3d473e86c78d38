// The frame: who is logged in, which page is open, and the rail that leads to the others.
import * as api from "./api.js";
import * as feed from "./feed.js";
import { button, clear, field, h, head, problem, skeleton } from "./ui.js";

const PAGES = [
  ["Live", [["overview", "Overview"], ["flow", "Flow"], ["connections", "Connections"]]],
  ["Data", [["streams", "Streams"], ["publish", "Publish & request"], ["consumers", "Consumers"], ["queues", "Queues"],
    ["kv", "Key-value"], ["objects", "Objects"], ["pipelines", "Pipelines"]]],
  ["Server", [["access", "Access"], ["audit", "Audit log"], ["api", "API"]]],
];
const NAMES = new Map(PAGES.flatMap(([, entries]) => entries));
const LOADERS = {
  overview: () => import("./pages/overview.js"), streams: () => import("./pages/streams.js"),
  stream: () => import("./pages/stream.js"), publish: () => import("./pages/publish.js"),
  consumers: () => import("./pages/consumers.js"), queues: () => import("./pages/queues.js"),
  kv: () => import("./pages/kv.js"), objects: () => import("./pages/objects.js"),
  flow: () => import("./pages/flow.js"), connections: () => import("./pages/connections.js"),
  access: () => import("./pages/access.js"), audit: () => import("./pages/audit.js"),
  pipelines: () => import("./pages/pipelines.js"), api: () => import("./pages/api.js"),
};
const app = document.getElementById("app");
let main = null, rail = null, status = null, open = null;

// What a page is given: where to draw, and what ends when it is left.
class View {
  constructor(root, args, query) { this.root = root; this.args = args; this.query = query; this.ends = []; this.left = false; }
  live(call) { this.ends.push(feed.listen(() => { if (!this.left) call(); })); }
  every(ms, call) {
    const timer = setInterval(async () => { if (!this.left && !document.hidden) try { await call(); } catch { /* next time */ } }, ms);
    this.ends.push(() => clearInterval(timer));
  }
  onLeave(call) { this.ends.push(call); }
  leave() { this.left = true; for (const end of this.ends) end(); }
}

async function begin() {
  theme(localStorage.getItem("millstream.theme") || "");
  try {
    if (!api.loggedIn() && (await api.get("/v0/login")).required) return login("");
    api.setMe(await api.get("/v0/whoami"));
  }
  catch (error) {
    if (error.status === 401) return login(api.loggedIn() ? "That key or password is not known here." : "");
    return clear(app, h("div", { class: "login" }, h("div", { class: "card" }, problem(error), button("Try again", begin))));
  }
  frame();
  await feed.start();
  feed.listen(showStatus);
  await route();
}

function login(wrong) {
  feed.stop();
  const key = h("input", { type: "password", autocomplete: "off", placeholder: "msk_…", name: "key" });
  const user = h("input", { type: "text", autocomplete: "username", name: "user" });
  const password = h("input", { type: "password", autocomplete: "current-password", name: "password" });
  const form = h("form", { class: "card" },
    h("div", { class: "brand" }, h("img", { src: "/ui/icon.svg", alt: "" }), "millstream"),
    h("h1", null, "Log in"),
    h("p", { class: "soft" }, "Use an API key, or the name and password of a user. You see what that credential may see."),
    wrong ? h("div", { class: "problem", role: "alert" }, wrong) : null,
    field("API key", key), h("div", { class: "soft small" }, "or"),
    field("User", user), field("Password", password),
    h("button", { class: "primary", type: "submit" }, "Log in"));
  form.addEventListener("submit", event => {
    event.preventDefault();
    api.logIn(key.value ? api.bearer(key.value.trim()) : api.basic(user.value, password.value));
    begin();
  });
  clear(app, h("main", { class: "login", id: "main" }, form));
  document.title = "Log in · millstream";
  key.focus();
}

function frame() {
  status = h("span", { class: "chip" }, h("span", { class: "dot" }), "connecting");
  main = h("main", { id: "main", tabindex: "-1" });
  const who = api.me;
  const menu = h("button", { type: "button", class: "menu-button small", "aria-expanded": "false", "aria-controls": "pages",
    onclick: () => { const on = rail.classList.toggle("open"); menu.setAttribute("aria-expanded", String(on)); } }, "Menu");
  rail = h("header", { class: "rail" },
    h("div", { class: "top" }, h("a", { class: "brand", href: "#/overview" }, h("img", { src: "/ui/icon.svg", alt: "" }), "millstream"), menu),
    h("nav", { class: "pages", id: "pages", "aria-label": "Pages" }, PAGES.map(([group, entries]) => h("div", null,
      h("h2", null, group), h("ul", null, entries.map(([key, words]) => h("li", null, h("a", { href: `#/${key}`, "data-page": key }, words))))))),
    h("div", { class: "who" }, h("div", { class: "row" }, status),
      h("div", { class: "small soft wrap" }, who.kind === "open" ? "No login needed" : who.who, who.account !== "$G" ? ` · ${who.account}` : ""),
      h("div", { class: "row" },
        h("button", { type: "button", class: "small plain", onclick: turnTheme }, "Light / dark"),
        who.kind === "open" ? null : h("button", { type: "button", class: "small plain", onclick: () => { api.logIn(""); location.hash = ""; begin(); } }, "Log out"))));
  clear(app, h("div", { class: "frame" }, rail, main));
}

function showStatus() {
  if (!status) return;
  const problems = feed.server && feed.server.problems || [];
  const [kind, words] = !feed.connected ? ["warn", "reconnecting"] : problems.length ? ["bad", `${problems.length} problem${problems.length > 1 ? "s" : ""}`] : ["good", "live"];
  const shown = `chip ${kind}`;
  if (status.className === shown && status.lastChild.textContent === words) return;
  status.className = shown;
  clear(status, h("span", { class: "dot" }), document.createTextNode(words));
}

async function route() {
  if (!main) return;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "overview", ...args] = path.split("/").map(part => { try { return decodeURIComponent(part); } catch { return part; } });
  const key = LOADERS[name] ? name : "overview";
  if (open) open.leave();
  rail.classList.remove("open");
  rail.querySelector(".menu-button").setAttribute("aria-expanded", "false");
  for (const link of rail.querySelectorAll("a[data-page]")) {
    const here = link.dataset.page === (key === "stream" ? "streams" : key);
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = `${key === "stream" ? args[0] : NAMES.get(key)} · millstream`;
  const root = h("div", { class: "stack" }, skeleton());
  clear(main, root);
  const view = open = new View(root, args, new URLSearchParams(query || ""));
  try {
    const page = await LOADERS[key]();
    if (!view.left) await page.show(view);
  } catch (error) {
    if (!view.left) clear(root, head(NAMES.get(key) || key), problem(error), button("Try again", route));
  }
  if (!view.left) { root.dataset.ready = key; if (document.activeElement === document.body) main.focus({ preventScroll: true }); }
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
}
function turnTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("millstream.theme", dark ? "light" : "dark");
  theme(dark ? "light" : "dark");
}

addEventListener("hashchange", route);
let leaving = false;
addEventListener("logged-out", () => {
  if (leaving) return;
  leaving = true; setTimeout(() => { leaving = false; }, 500);
  if (open) open.leave();
  main = null; login(api.loggedIn() ? "The credential counts no longer. Log in again." : "");
});
begin();
