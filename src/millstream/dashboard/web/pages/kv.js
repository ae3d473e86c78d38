// Key-value buckets: keys, values, and what they were before.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { payload, peek, visible } from "../payload.js";
import { ago, button, bytes, chip, clear, clock, confirmTyped, count, dialog, empty, field, h, head, table, toast } from "../ui.js";

const operation = message => ((message.headers || []).find(([key]) => key === "KV-Operation") || [])[1] || "PUT";

export async function show(view) {
  const [bucket, ...rest] = view.args;
  if (bucket && rest.length) return history(view, bucket, rest.join("/"));
  return bucket ? keys(view, bucket) : buckets(view);
}

async function buckets(view) {
  const box = h("section", { class: "card flush" });
  clear(view.root, head("Key-value", "Buckets of keys. Each is a stream, and keeps what its keys were before."), box);
  const draw = () => {
    const found = [...feed.streams.values()].filter(s => s.name.startsWith("KV_")).sort((a, b) => a.name < b.name ? -1 : 1);
    if (box.contains(document.activeElement)) return;
    clear(box, found.length ? table("Buckets", [
      { title: "Bucket", class: "name", cell: s => h("a", { href: `#/kv/${encodeURIComponent(s.name.slice(3))}` }, s.name.slice(3)) },
      { title: "Values kept", num: true, cell: s => count(s.messages) }, { title: "Size", num: true, cell: s => bytes(s.bytes) },
      { title: "Last change", num: true, cell: s => ago(s.at) }], found) : empty("No buckets", "Any NATS client makes them.", "nats kv add settings --history 5"));
  };
  view.live(draw); draw();
}

async function keys(view, bucket) {
  const stream = `KV_${bucket}`, box = h("section", { class: "card flush" });
  let wanted = "", found = [], next = null;
  const search = h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key" });
  search.addEventListener("input", () => { wanted = search.value.toLowerCase(); draw(); });
  clear(view.root, h("div", null, h("div", { class: "crumb" }, h("a", { href: "#/kv" }, "Key-value"), " /"),
    head(bucket, null, search, api.may("write") && button("Put a key", () => edit(bucket, "", "", look), "primary"))), box);
  const keyOf = m => m.subject.slice(`$KV.${bucket}.`.length);
  const draw = () => {
    const shown = found.filter(m => operation(m) === "PUT" && keyOf(m).toLowerCase().includes(wanted));
    clear(box, shown.length ? table("Keys", [
      { title: "Key", class: "name", cell: m => h("a", { href: `#/kv/${encodeURIComponent(bucket)}/${encodeURIComponent(keyOf(m))}` }, visible(keyOf(m))) },
      { title: "Value", class: "wrap mono", cell: m => peek(m).slice(0, 200) },
      { title: "Revision", num: true, cell: m => count(m.seq) }, { title: "Changed", num: true, cell: m => ago(m.ts) },
      { title: "", cell: m => api.may("write") && h("div", { class: "row" }, button("Edit", () => edit(bucket, keyOf(m), m.text ?? "", look), "small"), button("Delete", () => remove(bucket, keyOf(m), look), "small danger")) },
    ], shown.slice(0, 500)) : empty(wanted ? "No such key" : "No keys", wanted ? "" : "Put one here, or with any NATS client."),
    next && h("div", { class: "empty" }, `The first ${count(found.length)} keys are shown.`));
  };
  const look = async () => {
    const page = await api.post(api.topic(stream, "/browse"), { last_per_subject: true, subject: `$KV.${bucket}.>`, order: "newest", limit: 500, preview_bytes: 4096 });
    found = page.records.sort((a, b) => a.subject < b.subject ? -1 : 1); next = page.next_seq;
    if (!view.left) draw();
  };
  await look();
  let last = 0;
  view.live(() => { const s = feed.streams.get(stream); if (s && s.last !== last) { last = s.last; if (!box.contains(document.activeElement)) look().catch(() => {}); } });
}

async function history(view, bucket, key) {
  const stream = `KV_${bucket}`, subject = `$KV.${bucket}.${key}`;
  const look = async () => {
    const page = await api.post(api.topic(stream, "/browse"), { subject, order: "newest", limit: 100, preview_bytes: 1048576 });
    if (view.left) return;
    const now = page.records[0];
    clear(view.root, h("div", null, h("div", { class: "crumb" }, h("a", { href: "#/kv" }, "Key-value"), " / ", h("a", { href: `#/kv/${encodeURIComponent(bucket)}` }, bucket), " /"),
      head(key, null, api.may("write") && button("Edit", () => edit(bucket, key, now ? now.text ?? "" : "", look), "primary"), api.may("write") && button("Delete", () => remove(bucket, key, look), "danger"))),
    now && h("section", { class: "card" }, h("header", null, h("h2", null, "Value"), chip(operation(now), operation(now) === "PUT" ? "good" : "warn")), payload(now)),
    h("section", { class: "card flush" }, h("header", null, h("h2", null, "History")), page.records.length ? table("History", [
      { title: "Revision", num: true, cell: m => count(m.seq) }, { title: "Time", cell: m => clock(m.ts) },
      { title: "What", cell: m => chip(operation(m), operation(m) === "PUT" ? "" : "warn") }, { title: "Value", class: "wrap mono", cell: m => peek(m).slice(0, 300) }], page.records) : empty("No history", "The bucket keeps nothing of this key.")));
  };
  await look();
}

async function edit(bucket, key, value, again) {
  const name = h("input", { type: "text", value: key, required: true }), text = h("textarea"); text.value = value;
  if (key) name.readOnly = true;
  const done = await dialog(key ? `Edit ${key}` : "Put a key", h("div", { class: "stack" }, field("Key", name), field("Value", text)), "Save", async () => {
    if (!/^[-/_=.a-zA-Z0-9]+$/.test(name.value)) throw new Error("A key is made of letters, digits and - / _ = .");
    return api.post("/v0/publish", { subject: `$KV.${bucket}.${name.value}`, text: text.value, ack: true });
  });
  if (done) { toast(`Saved ${name.value} as revision ${done.ack.seq}`); await again(); }
}
async function remove(bucket, key, again) {
  const done = await confirmTyped(`Delete ${key}`, "The key is marked as deleted; its history stays as long as the bucket keeps it.", key, "Delete",
    () => api.post("/v0/publish", { subject: `$KV.${bucket}.${key}`, headers: { "KV-Operation": "DEL" }, text: "", ack: true }));
  if (done) { toast(`Deleted ${key}`); await again(); }
}
