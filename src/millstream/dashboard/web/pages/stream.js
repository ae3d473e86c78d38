// One stream: its messages, its consumers, its settings.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { browser } from "../browse.js";
import { consumerTable } from "./consumers.js";
import { ago, button, bytes, check, chip, clear, confirmTyped, count, dialog, empty, facts, field, h, head, problem, select, short, table, tabs, tile, toast } from "../ui.js";

const TABS = [["messages", "Messages"], ["consumers", "Consumers"], ["settings", "Settings"], ["state", "State"]];

export async function show(view) {
  const [name, tab = "messages"] = view.args;
  const at = `#/stream/${encodeURIComponent(name)}`;
  const topic = await api.get(api.topic(name, "?touch=false"));
  topic.config.subjects = topic.config.subjects || [];
  const tiles = h("div", { class: "grid tight" }), box = h("div", { class: "stack" });
  clear(view.root, h("div", null, h("div", { class: "crumb" }, h("a", { href: "#/streams" }, "Streams"), " /"),
    head(name, topic.config.subjects.length ? `takes ${topic.config.subjects.join(", ")}` : "takes what is written by its name",
      api.may("write") && h("a", { class: "button", href: `#/publish?subject=${encodeURIComponent(topic.config.subjects[0] || "")}&stream=${encodeURIComponent(name)}` }, "Publish"),
      api.may("delete") && button("Purge", () => purge(name), "danger"), api.may("delete") && button("Delete", () => remove(name), "danger"))),
  tiles, tabs("Parts of the stream", TABS.map(([key, words]) => [key, words, `${at}/${key}`]), tab), box);
  const draw = () => {
    const s = feed.streams.get(name);
    const live = s || { messages: topic.count, bytes: topic.bytes, first: topic.earliest_seq, last: topic.head_seq, rate: 0, consumers: 0, at: topic.last_write_ts };
    clear(tiles, tile("Messages", short(live.messages), bytes(live.bytes)), tile("Written", short(live.rate) + "/s", `last ${ago(live.at)}`),
      tile("Sequences", live.last ? `${short(live.first)} – ${short(live.last)}` : "–", live.last && live.last - live.first + 1 > live.messages ? `${short(live.last - live.first + 1 - live.messages)} holes` : "no holes"),
      tile("Consumers", count(live.consumers)), tile("Durability", topic.config.durability, topic.config.durability === "fsync" ? "on disk before the ack" : "weaker than the default"));
    return live;
  };
  draw();
  if (tab === "consumers") await consumers(view, box, name);
  else if (tab === "settings") settings(box, name, topic);
  else if (tab === "state") await state(box, name, topic);
  else {
    const found = browser(view, name);
    clear(box, found.box);
    view.live(() => { const live = draw(); found.follow(live.last); });
    return;
  }
  view.live(draw);
}

async function consumers(view, box, name) {
  const look = async () => {
    const found = await api.all(api.topic(name, "/consumers"), "consumers");
    if (!view.left) clear(box, api.may("admin") && h("div", { class: "row" }, button("New consumer", () => create(name, look), "primary")),
      h("section", { class: "card flush" }, found.length ? consumerTable(found, look) : empty("No consumers", "Nobody keeps a place in this stream.")));
  };
  await look();
  view.every(2000, async () => { if (!box.contains(document.activeElement)) await look(); });
}

async function create(name, look) {
  const title = h("input", { type: "text", required: true }), filter = h("input", { type: "text", placeholder: "all subjects" });
  const from = select([["all", "the first message"], ["new", "the next one"], ["last", "the last one"]], "all");
  const made = await dialog("New consumer", h("div", { class: "form" }, field("Name", title), field("Starts with", from), h("div", { class: "wide" }, field("Filter", filter))), "Create", async () => {
    await api.put(api.consumer(name, title.value.trim()), { deliver_policy: from.value, ...(filter.value.trim() ? { filter_subject: filter.value.trim() } : {}) });
    return title.value;
  });
  if (made) { toast(`Created ${made}`); await look(); }
}

const NUMBERS = [
  ["ttl_ms", "Age limit", "milliseconds, 0 for none"], ["cap_records", "Most messages", "0 for no limit"], ["cap_bytes", "Most bytes", "0 for no limit"],
  ["idempotency_window_ms", "Duplicate window", "milliseconds"], ["lease_ms", "Lease", "milliseconds, queues"], ["max_deliveries", "Most deliveries", "0 for no end, queues"],
];
function settings(box, name, topic) {
  const config = topic.config, wrong = h("div"), inputs = {};
  for (const [key] of NUMBERS) inputs[key] = h("input", { type: "number", min: "0", value: String(config[key] ?? 0) });
  const subjects = h("input", { type: "text", value: config.subjects.join(", ") });
  const letters = h("input", { type: "text", value: config.dead_letter || "", placeholder: "none" });
  const discard = select([["old", "drop the oldest"], ["reject", "refuse new ones"]], config.discard);
  const durability = select(["fsync", "disk", "memory", "ephemeral"], config.durability);
  const form = h("form", { class: "card stack" }, h("div", { class: "form" },
    h("div", { class: "wide" }, field("Subjects", subjects, "with commas between")),
    NUMBERS.map(([key, words, hint]) => field(words, inputs[key], hint)), field("When full", discard), field("Durability", durability),
    config.type === "queue" && field("Dead letters go to", letters)), wrong,
  api.may("admin") ? h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, "Save")) : h("p", { class: "soft" }, "Your credential may look at this, but not change it."));
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const wish = { ...config, discard: discard.value, durability: durability.value, subjects: subjects.value.split(",").map(s => s.trim()).filter(Boolean) };
    for (const [key] of NUMBERS) wish[key] = Number(inputs[key].value);
    if (config.type === "queue") wish.dead_letter = letters.value.trim() || null;
    try { if (!wish.subjects.length) delete wish.subjects; topic.config = { subjects: [], ...(await api.put(api.topic(name), wish)).config }; clear(wrong); toast("Saved"); }
    catch (error) { clear(wrong, problem(error)); }
  });
  clear(box, form, h("details", { class: "card" }, h("summary", null, "The whole configuration as JSON"), h("pre", { tabindex: "0" }, JSON.stringify(config, null, 2))));
}

async function state(box, name, topic) {
  const plan = await api.get(api.topic(name, "/plan"));
  const gaps = plan.gaps || [];
  clear(box, h("section", { class: "card" }, facts([
    ["First sequence", count(topic.earliest_seq)], ["Last sequence", count(topic.head_seq)], ["Messages", count(topic.count)], ["Data", bytes(topic.bytes)],
    ["Sealed segments", count(plan.segments.length)], ["Incarnation", String(plan.incarnation)], ["Priority", String(topic.effective_priority)],
    ["Last read", ago(topic.last_read_ts)], ["Last write", ago(topic.last_write_ts)]])),
  h("section", { class: "card flush" }, h("header", null, h("h2", null, "Gaps")), gaps.length ? table("Gaps", [
    { title: "From", num: true, cell: g => count(g[0]) }, { title: "To", num: true, cell: g => count(g[1]) }, { title: "Records", num: true, cell: g => count(g[1] - g[0] + 1) },
    { title: "Reason", cell: g => chip(g[2], /damage|lost|torn/.test(g[2]) ? "bad" : "") }], gaps.slice(0, 500)) : empty("No gaps", "Every sequence is there, or was removed as asked.")));
}

async function purge(name) {
  const done = await confirmTyped(`Purge ${name}`, "All messages go for good. The stream, its settings and its consumers stay.", name, "Purge",
    async () => { const t = await api.get(api.topic(name, "?touch=false")); return api.post(api.topic(name, "/delete"), { before_seq: t.head_seq + 1 }); });
  if (done) { toast(`Purged ${count(done.deleted)} messages`); dispatchEvent(new HashChangeEvent("hashchange")); }
}
async function remove(name) {
  const done = await confirmTyped(`Delete ${name}`, "The stream goes for good, with its messages, consumers and routers.", name, "Delete", () => api.del(api.topic(name)));
  if (done) { toast(`Deleted ${name}`); location.hash = "#/streams"; }
}
