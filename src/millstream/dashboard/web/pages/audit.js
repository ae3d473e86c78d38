// The audit log: what was changed, by whom, kept as a stream like any other.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { visible } from "../payload.js";
import { button, chip, clear, clock, empty, h, head, table } from "../ui.js";

const STREAM = "millstream-audit";

export async function show(view) {
  const box = h("section", { class: "card flush" });
  clear(view.root, head("Audit log", "Every change over HTTP, with the credential that made it.", h("a", { class: "button", href: `#/stream/${STREAM}` }, "As a stream")), box);
  let found = [], next = null;
  const draw = () => clear(box, found.length ? table("Changes", [
    { title: "Time", cell: e => clock(e.time) }, { title: "Who", class: "name", cell: e => visible(e.who) }, { title: "What", cell: e => chip(e.method, e.method === "DELETE" ? "bad" : "accent") },
    { title: "Where", class: "wrap mono", cell: e => visible(decode(e.path)) }, { title: "Asked", class: "wrap mono", cell: e => visible((e.body || e.query || "").slice(0, 160)) || "–" },
    { title: "Answer", num: true, cell: e => chip(String(e.status), e.status < 400 ? "good" : "bad") }, { title: "From", cell: e => e.from || "–" }], found)
    : empty("Nothing was changed yet", api.me.kind === "open" ? "The log begins with the first key or user: while nobody says who they are, there is nobody to name." : "Changes over HTTP show up here."),
  next && h("div", { class: "empty" }, button("Show more", () => look(next))));
  const look = async from => {
    try {
      if (!feed.streams.has(STREAM)) { if (!view.left) draw(); return; }
      const page = await api.post(api.topic(STREAM, "/browse"), { limit: 100, ...(from ? { from_seq: from } : {}) });
      const read = page.records.map(each => { try { return JSON.parse(each.text); } catch { return null; } }).filter(Boolean);
      found = from ? [...found, ...read] : read; next = page.next_seq;
    } catch (error) { if (error.status === 403) { clear(box, empty("Not for this credential", "The log tells of the whole account.")); return; } if (error.status !== 404) throw error; }
    if (!view.left) draw();
  };
  await look();
  let last = 0;
  view.live(() => { const s = feed.streams.get(STREAM); if (s && s.last !== last && !box.contains(document.activeElement)) { last = s.last; look().catch(() => {}); } });
}
const decode = path => { try { return decodeURIComponent(path); } catch { return path; } };
