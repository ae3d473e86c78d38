// Connections: who is here, what they move, and a way to end one.
import * as api from "../api.js";
import { button, bytes, chip, clear, count, confirmTyped, dialog, empty, h, head, select, table, toast } from "../ui.js";

export async function show(view) {
  const box = h("section", { class: "card flush" });
  const search = h("input", { type: "search", placeholder: "Name, user, address", "aria-label": "Filter connections" });
  const state = select([["open", "Open"], ["closed", "Closed"], ["all", "All"]], "open"); state.setAttribute("aria-label", "State");
  const sort = select([["cid", "by number"], ["bytes_to", "by bytes received"], ["bytes_from", "by bytes sent"], ["pending", "by bytes waiting"], ["subs", "by subscriptions"], ["idle", "by idle time"], ["rtt", "by round trip"]], "cid");
  sort.setAttribute("aria-label", "Order");
  const language = select([["", "Any language"]], ""); language.setAttribute("aria-label", "Language");
  for (const each of [state, sort, language]) each.style.width = "auto";
  clear(view.root, head("Connections", "Clients over NATS.", search, language, state, sort), box);
  if (!api.me.whole_server) { clear(box, empty("Not for this credential", "Connections show the whole server, and yours may see a part of it.")); return; }
  let found = [];
  const draw = () => {
    const words = search.value.toLowerCase();
    const shown = found.filter(c => (!language.value || c.lang === language.value) && [c.name, c.authorized_user, c.account, c.ip, c.lang, String(c.cid)].some(each => (each || "").toLowerCase().includes(words)));
    const known = [...new Set(found.map(c => c.lang).filter(Boolean))].sort();
    if (known.length + 1 !== language.options.length) { const was = language.value; clear(language, ...select([["", "Any language"], ...known], was).children); language.value = was; }
    clear(box, shown.length ? table("Connections", [
      { title: "Number", num: true, cell: c => c.cid }, { title: "Client", class: "name", cell: c => c.name || h("span", { class: "soft" }, "unnamed") },
      { title: "Who", cell: c => [c.authorized_user || "–", c.account ? ` · ${c.account}` : ""] },
      { title: "Address", cell: c => h("span", { class: "mono" }, `${c.ip}:${c.port}`) },
      { title: "Language", cell: c => c.lang ? chip(`${c.lang} ${c.version || ""}`) : "–" },
      { title: "In", num: true, cell: c => `${count(c.in_msgs)} · ${bytes(c.in_bytes)}` }, { title: "Out", num: true, cell: c => `${count(c.out_msgs)} · ${bytes(c.out_bytes)}` },
      { title: "Waiting", num: true, cell: c => bytes(c.pending_bytes) }, { title: "Subscriptions", num: true, cell: c => count(c.subscriptions) },
      { title: "Idle", num: true, cell: c => c.stop ? chip(c.reason, "warn") : c.idle },
      { title: "", cell: c => !c.stop && api.may("admin") && button("Close", () => close(c), "small danger") },
    ], shown.slice(0, 500)) : empty(found.length ? "Nobody like that" : "Nobody is connected", found.length ? "" : "Any NATS client can come in.", found.length ? null : `nats sub '>' -s nats://${location.hostname}:4222`));
  };
  const look = async () => {
    found = (await api.get(`/connz?auth=1&limit=1024&state=${state.value}&sort=${sort.value}`)).connections;
    if (!view.left) draw();
  };
  const close = async c => {
    const done = await dialog(`Close connection ${c.cid}`, h("p", null, `${c.name || c.ip} is sent away. Most clients connect again at once; take its credential away to keep it out.`), "Close it", () => api.del(`/connz/${c.cid}`), { danger: true });
    if (done) { toast(`Closed ${c.cid}`); await look(); }
  };
  search.addEventListener("input", draw); language.addEventListener("change", draw);
  for (const each of [state, sort]) each.addEventListener("change", () => look().catch(error => toast(error.message, true)));
  await look();
  view.every(2000, async () => { if (!box.contains(document.activeElement)) await look(); });
}
