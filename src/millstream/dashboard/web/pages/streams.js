// Streams: all of them, with sizes and rates; new ones are made here.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { spark } from "../charts.js";
import { button, bytes, chip, clear, count, dialog, empty, field, h, head, select, short, table, toast, ago } from "../ui.js";

const SHOWN = 200;

export async function show(view) {
  let wanted = view.query.get("q") || "", sortBy = 0, descending = false, most = SHOWN;
  const box = h("section", { class: "card flush" });
  const search = h("input", { type: "search", placeholder: "Find a stream", "aria-label": "Find a stream", value: wanted });
  search.addEventListener("input", () => { wanted = search.value; draw(true); });
  clear(view.root, head("Streams", "Logs of records, by either name: streams over NATS, topics over HTTP.",
    search, api.may("admin") && button("New stream", create, "primary")), box);
  const columns = [
    { title: "Stream", class: "name", sort: s => s.name, cell: s => h("a", { href: `#/stream/${encodeURIComponent(s.name)}` }, s.name) },
    { title: "Kind", sort: s => s.kind, cell: s => chip(s.kind === "limits" ? "log" : s.kind, s.kind === "queue" ? "accent" : "") },
    { title: "Rate", num: true, sort: s => s.rate, cell: s => short(s.rate) + "/s" },
    { title: "Last minute", cell: s => spark(s.trail, `Rate of ${s.name}`) },
    { title: "Messages", num: true, sort: s => s.messages, cell: s => count(s.messages) },
    { title: "Size", num: true, sort: s => s.bytes, cell: s => bytes(s.bytes) },
    { title: "First", num: true, sort: s => s.first, cell: s => s.last ? count(s.first) : "–" },
    { title: "Last", num: true, sort: s => s.last, cell: s => s.last ? count(s.last) : "–" },
    { title: "Consumers", num: true, sort: s => s.consumers, cell: s => count(s.consumers) },
    { title: "Last write", num: true, sort: s => s.at, cell: s => ago(s.at) },
  ];
  let hovered = false;
  box.addEventListener("focusin", () => { hovered = true; });
  box.addEventListener("focusout", () => { hovered = false; });
  const draw = force => {
    if (hovered && !force) return;  // nothing moves away under somebody's fingers
    const words = wanted.toLowerCase();
    const found = [...feed.streams.values()].filter(s => s.name.toLowerCase().includes(words));
    const key = columns[sortBy].sort;
    found.sort((a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : 0) * (descending ? -1 : 1));
    clear(box, found.length ? table("Streams", columns, found.slice(0, most), { sortBy, descending, onSort: at => { descending = sortBy === at ? !descending : at > 1; sortBy = at; draw(true); } })
      : empty(wanted ? "No stream has such a name" : "No streams yet", wanted ? "" : "Make one here, or just publish:", wanted ? null : "millstream pub orders.new '{\"id\":1}'"),
    found.length > most && h("div", { class: "empty" }, button(`Show ${Math.min(SHOWN, found.length - most)} more of ${count(found.length)}`, () => { most += SHOWN; draw(true); })),
    feed.total > feed.streams.size && h("div", { class: "empty" }, `These are the ${count(feed.streams.size)} streams written last, of ${count(feed.total)}.`));
  };
  view.live(() => draw(false)); draw(true);
}

async function create() {
  const name = h("input", { type: "text", required: true, autocomplete: "off" });
  const subjects = h("input", { type: "text", placeholder: "orders.>, billing.*" });
  const kind = select([["log", "Log: readers keep their place"], ["queue", "Queue: jobs are leased and acked"]], "log");
  const durability = select([["fsync", "fsync: on disk before the ack"], ["disk", "disk: written before the ack"], ["memory", "memory"], ["ephemeral", "ephemeral"]], "fsync");
  const made = await dialog("New stream", h("div", { class: "form" }, field("Name", name), field("Kind", kind),
    h("div", { class: "wide" }, field("Subjects", subjects, "what it takes from NATS, with commas between")), h("div", { class: "wide" }, field("Durability", durability))), "Create", async () => {
    const config = { type: kind.value, durability: durability.value };
    const listed = subjects.value.split(",").map(each => each.trim()).filter(Boolean);
    if (listed.length) config.subjects = listed;
    if (!name.value.trim()) throw new Error("The stream needs a name.");
    await api.put(api.topic(name.value.trim()), config);
    return name.value.trim();
  });
  if (made) { toast(`Created ${made}`); location.hash = `#/stream/${encodeURIComponent(made)}`; }
}
