// Object stores: what they hold, how large, and the objects themselves to look at or take along.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { payload, raw, visible } from "../payload.js";
import { ago, button, bytes, chip, clear, clock, count, empty, facts, h, head, table, toast } from "../ui.js";

const MOST = 64 * 1024 * 1024;

export async function show(view) {
  const [bucket, ...rest] = view.args;
  return bucket ? rest.length ? one(view, bucket, rest.join("/")) : objects(view, bucket) : buckets(view);
}

async function buckets(view) {
  const box = h("section", { class: "card flush" });
  clear(view.root, head("Objects", "Stores for files of any size, in pieces that are records."), box);
  const draw = () => {
    if (box.contains(document.activeElement)) return;
    const found = [...feed.streams.values()].filter(s => s.name.startsWith("OBJ_")).sort((a, b) => a.name < b.name ? -1 : 1);
    clear(box, found.length ? table("Object stores", [
      { title: "Store", class: "name", cell: s => h("a", { href: `#/objects/${encodeURIComponent(s.name.slice(4))}` }, s.name.slice(4)) },
      { title: "Pieces", num: true, cell: s => count(s.messages) }, { title: "Size", num: true, cell: s => bytes(s.bytes) }, { title: "Last change", num: true, cell: s => ago(s.at) }], found)
      : empty("No object stores", "Any NATS client makes them.", "nats object add files"));
  };
  view.live(draw); draw();
}

async function listed(bucket, subject = `$O.${bucket}.M.>`, limit = 500) {
  const page = await api.post(api.topic(`OBJ_${bucket}`, "/browse"), { last_per_subject: true, subject, limit, preview_bytes: 65536 });
  return page.records.map(each => { try { return { ...JSON.parse(each.text), at: each.ts, seq: each.seq, subject: each.subject }; } catch { return null; } }).filter(Boolean);
}

async function objects(view, bucket) {
  const box = h("section", { class: "card flush" });
  clear(view.root, h("div", null, h("div", { class: "crumb" }, h("a", { href: "#/objects" }, "Objects"), " /"), head(bucket)), box);
  const found = (await listed(bucket)).filter(each => !each.deleted).sort((a, b) => a.name < b.name ? -1 : 1);
  clear(box, found.length ? table("Objects", [
    { title: "Name", class: "name", cell: o => h("a", { href: `#/objects/${encodeURIComponent(bucket)}/${encodeURIComponent(o.name)}` }, visible(o.name)) },
    { title: "Size", num: true, cell: o => bytes(o.size) }, { title: "Pieces", num: true, cell: o => count(o.chunks) }, { title: "Changed", num: true, cell: o => ago(o.at) },
    { title: "", cell: o => button("Download", () => download(bucket, o), "small") }], found) : empty("No objects", "Put one with any NATS client.", `nats object put ${bucket} file`));
}

async function one(view, bucket, name) {
  const encoded = btoa(String.fromCharCode(...new TextEncoder().encode(name))).replaceAll("+", "-").replaceAll("/", "_");
  const [found] = await listed(bucket, `$O.${bucket}.M.${encoded}`, 1);
  const crumb = h("div", { class: "crumb" }, h("a", { href: "#/objects" }, "Objects"), " / ", h("a", { href: `#/objects/${encodeURIComponent(bucket)}` }, bucket), " /");
  if (!found) { clear(view.root, h("div", null, crumb, head(name)), h("div", { class: "card" }, empty("No such object"))); return; }
  const history = (await api.post(api.topic(`OBJ_${bucket}`, "/browse"), { subject: found.subject, limit: 50, preview_bytes: 65536 })).records;
  const shown = h("section", { class: "card" });
  clear(view.root, h("div", null, crumb, head(name, found.description || null, button("Download", () => download(bucket, found), "primary"))),
    h("section", { class: "card" }, facts([["Size", bytes(found.size)], ["Pieces", count(found.chunks)], ["Digest", h("code", null, found.digest || "–")], ["Changed", clock(found.at)], ["Kept changes", count(history.length)]])), shown);
  const first = (await api.post(api.topic(`OBJ_${bucket}`, "/browse"), { subject: `$O.${bucket}.C.${found.nuid}`, order: "oldest", limit: 1, preview_bytes: 131072 })).records[0];
  clear(shown, h("header", null, h("h2", null, "Beginning of the object")), first ? payload(first) : empty("Empty", "The object has no bytes."));
}

async function download(bucket, o) {
  if (o.size > MOST) { toast(`${o.name} is larger than ${bytes(MOST)}: use a NATS client`, true); return; }
  const parts = []; let from = 1;
  do {
    const page = await api.post(api.topic(`OBJ_${bucket}`, "/browse"), { subject: `$O.${bucket}.C.${o.nuid}`, order: "oldest", from_seq: from, limit: 100, preview_bytes: 8388608 });
    parts.push(...page.records.map(raw)); from = page.next_seq;
  } while (from);
  const link = h("a", { download: o.name, href: URL.createObjectURL(new Blob(parts)) });
  document.body.append(link); link.click(); link.remove(); setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  toast(`Downloaded ${o.name}`);
}
