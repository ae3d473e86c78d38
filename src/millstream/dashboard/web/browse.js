// Messages of a stream: looked at and searched without taking any, a page at a time.
import * as api from "./api.js";
import { payload, peek, visible } from "./payload.js";
import { button, bytes, chip, clear, clock, copy, count, empty, facts, field, h, problem, select, skeleton } from "./ui.js";
import { commands } from "./commands.js";

const PAGE = 50, AT_ONCE = 20000;

export function browser(view, name, { fixed = {}, live = true } = {}) {
  const order = select([["newest", "Newest first"], ["oldest", "Oldest first"]], "newest");
  const seq = h("input", { type: "number", min: "1", placeholder: "any" });
  const since = h("input", { type: "datetime-local", step: "1" }), until = h("input", { type: "datetime-local", step: "1" });
  const subject = h("input", { type: "text", placeholder: "orders.*.new" });
  const text = h("input", { type: "text", placeholder: "part of the payload" });
  const tag = h("input", { type: "text", placeholder: "red or red*" });
  const header = h("input", { type: "text", placeholder: "Nats-Msg-Id: 17" });
  const path = h("input", { type: "text", placeholder: "$.order.total > 100" });
  const list = h("ol", { class: "messages" }), foot = h("div", { class: "empty" });
  const wrong = h("div"), news = h("div");
  let wish = {}, next = null, scanned = 0, run = null, newest = 0, found = 0;

  const wideEnough = matchMedia("(min-width: 861px)").matches;
  const form = h("form", { class: "stack" }, h("div", { class: "form" },
    field("Order", order), field("From sequence", seq), field("Since", since), field("Until", until),
    !fixed.subject && field("Subject", subject), field("Text", text), field("Tag", tag), field("Header", header), field("JSON path", path),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Search"), button("Clear", () => { form.reset(); start(); }))));
  const filters = h("details", { class: "card", open: wideEnough }, h("summary", null, "Search"), form);
  form.addEventListener("submit", event => { event.preventDefault(); start(); });

  function read() {
    const asked = { order: order.value, limit: PAGE, max_scan: AT_ONCE, ...fixed };
    if (seq.value) asked.from_seq = Number(seq.value);
    if (since.value) asked.since = new Date(since.value).getTime();
    if (until.value) asked.until = new Date(until.value).getTime();
    if (subject.value.trim()) asked.subject = subject.value.trim();
    if (text.value) asked.text = text.value;
    if (tag.value.trim()) asked.tag = tag.value.trim();
    if (header.value.trim()) {
      const [key, ...rest] = header.value.split(":");
      asked.header = { name: key.trim(), ...(rest.length ? { value: rest.join(":").trim() } : {}) };
    }
    if (path.value.trim()) asked.json = jsonWish(path.value.trim());
    return asked;
  }

  async function start() {
    if (run) run.abort();
    clear(list); clear(wrong); clear(news); scanned = found = 0;
    clear(foot, skeleton(2));
    try { wish = read(); } catch (error) { clear(wrong, problem(error)); clear(foot); return; }
    await more(wish.from_seq, true);
  }

  // Goes on by itself until a page is full: a search through a million records shows how far it is.
  async function more(from, first) {
    const mine = run = new AbortController();
    let missing = PAGE;
    try {
      do {
        const page = await api.post(api.topic(name, "/browse"), { ...wish, limit: missing, ...(from ? { from_seq: from } : {}) }, { signal: mine.signal });
        if (view.left || mine !== run) return;
        if (first) newest = page.last_seq;
        first = false;
        list.append(...page.records.map(each => line(view, name, each)));
        found += page.records.length; missing -= page.records.length; scanned += page.scanned;
        next = from = page.next_seq;
        if (next && missing > 0) clear(foot, h("span", null, `Searched ${count(scanned)} messages, found ${count(found)} …`), button("Stop", () => { mine.abort(); end(); }));
      } while (next && missing > 0);
      end();
    } catch (error) { if (error.name !== "AbortError") { clear(wrong, problem(error)); clear(foot); } }
  }
  function end() {
    if (!found) clear(foot, h("strong", null, scanned ? "Nothing matches" : "No messages"), h("span", null, scanned ? `Searched ${count(scanned)} messages.` : "What is published here shows up by itself."));
    else if (next) clear(foot, h("span", null, `${count(found)} shown`), button("Show more", () => more(next, false)));
    else clear(foot, h("span", null, `${count(found)} shown, that is all.`));
  }

  // New messages: shown at once while nobody looks deeper, else announced.
  let busy = false;
  async function follow(last) {
    if (!live || busy || last <= newest || wish.order === "oldest" || wish.from_seq || wish.until) return;
    busy = true;
    try {
      const page = await api.post(api.topic(name, "/browse"), { ...wish, limit: PAGE, from_seq: undefined });
      const fresh = page.records.filter(each => each.seq > newest);
      newest = Math.max(newest, page.last_seq);
      if (!view.left && fresh.length) {
        list.prepend(...fresh.map(each => line(view, name, each)));
        if (!found) clear(foot); found += fresh.length; end();
        while (list.children.length > 500) list.lastChild.remove();
      }
    } finally { busy = false; }
  }
  start();
  return { form, box: h("div", { class: "stack" }, filters, wrong, news, h("section", { class: "card flush", "aria-label": "Messages" }, list, foot)), follow, start };
}

export function jsonWish(text) {
  const match = /^(\S+?)\s*(==|=|!=|>|<|~|contains)\s*(.+)$/.exec(text);
  if (!match) return { path: text, op: "exists" };
  const op = { "==": "eq", "=": "eq", "!=": "ne", ">": "gt", "<": "lt", "~": "contains", contains: "contains" }[match[2]];
  let value = match[3].trim();
  try { value = JSON.parse(value); } catch { value = value.replace(/^'(.*)'$/, "$1"); }
  return { path: match[1], op, value };
}

function line(view, name, message) {
  const body = h("div", { class: "body", hidden: true });
  const bar = h("button", { type: "button", class: "line", "aria-expanded": "false" },
    h("span", { class: "mono" }, count(message.seq)), h("span", { class: "small soft time" }, clock(message.ts)),
    h("span", { class: "mono", title: visible(message.subject) }, visible(message.subject)),
    h("span", { class: "mono soft peek" }, peek(message)), h("span", { class: "num small soft" }, bytes(message.size)));
  bar.addEventListener("click", async () => {
    const shown = body.hidden;
    body.hidden = !shown; bar.setAttribute("aria-expanded", String(shown));
    if (shown && !body.children.length) await detail(body, name, message);
  });
  return h("li", { "data-seq": message.seq }, bar, body);
}

async function detail(body, name, message) {
  let whole = message;
  if (message.cut) {
    clear(body, skeleton(3));
    try { whole = (await api.post(api.topic(name, "/browse"), { order: "oldest", from_seq: message.seq, limit: 1, preview_bytes: 8388608 })).records[0] || message; } catch { whole = message; }
  }
  clear(body,
    facts([["Subject", h("code", null, visible(whole.subject))], ["Time", clock(whole.ts)], ["Size", `${bytes(whole.size)} (${count(whole.size)} bytes)`],
      whole.tag && ["Tag", visible(whole.tag)], whole.node && ["Node", visible(whole.node)], whole.meta && ["Meta", h("code", null, visible(whole.meta))],
      ...(whole.headers || []).map(([key, value]) => [visible(key), h("code", null, visible(value))])]),
    whole.masked && chip("masked by a rule", "warn"), whole.cut && h("div", { class: "notice warn" }, "Only the first 8 MiB are shown."),
    payload(whole),
    h("div", { class: "row" }, button("Copy payload", () => copy(whole.text ?? whole.base64), "small"),
      commands(whole).map(([words, text]) => button(`Copy as ${words}`, () => copy(text, `Copied as ${words}`), "small"))));
}
