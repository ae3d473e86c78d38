// Access: accounts, users and keys; secrets are never here.
import * as api from "../api.js";
import { chip, clear, count, empty, facts, h, head, table } from "../ui.js";

const rule = r => r.allow === null ? (r.deny.length ? `all but ${r.deny.join(", ")}` : "everything") : `${r.allow.join(", ") || "nothing"}${r.deny.length ? `, not ${r.deny.join(", ")}` : ""}`;

export async function show(view) {
  const me = api.me;
  const own = h("section", { class: "card" }, h("header", null, h("h2", null, "You")), facts([["Credential", me.who], ["Account", me.account], ["Scopes", h("span", { class: "row" }, me.scopes.map(s => chip(s, "accent")))], ["Names", me.prefixes.length ? me.prefixes.map(p => `${p}…`).join(", ") : "any"]]));
  clear(view.root, head("Access", "Who may come in, and what they may do."), own);
  if (!me.whole_server || !me.scopes.includes("admin")) return void view.root.append(h("div", { class: "card" }, empty("The rest is for operators", "Accounts, users and keys of the whole server need the scope admin.")));
  const said = await api.get("/v0/access");
  if (!said.auth_required) view.root.append(h("div", { class: "notice warn" }, "Nobody is asked who they are. The server listens on this machine only; make a key before you open it: ", h("code", null, "millstream key add")));
  view.root.append(
    h("section", { class: "card flush" }, h("header", null, h("h2", null, "Keys")), said.keys.length ? table("Keys", [
      { title: "Key", class: "name", cell: k => k.id }, { title: "Account", cell: k => k.account }, { title: "Scopes", cell: k => h("span", { class: "row" }, k.scopes.map(s => chip(s, "accent"))) }, { title: "Names", cell: k => k.prefixes.length ? k.prefixes.map(p => `${p}…`).join(", ") : "any" }], said.keys) : empty("No keys", "Keys open HTTP.", "millstream key add reader --scopes read")),
    h("section", { class: "card flush" }, h("header", null, h("h2", null, "Users")), said.users.length ? table("Users", [
      { title: "User", class: "name", cell: u => u.name }, { title: "Account", cell: u => u.account }, { title: "Kind", cell: u => chip(u.kind) }, { title: "May publish", class: "wrap", cell: u => rule(u.publish) }, { title: "May subscribe", class: "wrap", cell: u => rule(u.subscribe) }], said.users) : empty("No users", "Users come from the configuration file.")),
    h("section", { class: "card flush" }, h("header", null, h("h2", null, "Accounts")), table("Accounts", [
      { title: "Account", class: "name", cell: a => [a.name, a.label && a.label !== a.name ? ` (${a.label})` : "", " ", a.system && chip("system", "accent")] }, { title: "Streams", cell: a => a.jetstream ? chip("yes", "good") : chip("no") }, { title: "Exports", num: true, cell: a => count(a.exports) }, { title: "Imports", num: true, cell: a => count(a.imports) }], said.accounts)));
}
