// The public HTTP API, with the credential that the reader logged in with.

const KEY = "millstream.credential";
let credential = sessionStorage.getItem(KEY) || "";
export let me = null;
export const setMe = who => { me = who; };
export const may = scope => !me || me.scopes.includes(scope);

export function logIn(header) {
  credential = header;
  if (header) sessionStorage.setItem(KEY, header); else sessionStorage.removeItem(KEY);
}
export const loggedIn = () => Boolean(credential);
export const bearer = key => "Bearer " + key;
export const basic = (user, password) =>
  "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`)));
export const headers = () => credential ? { authorization: credential } : {};

export class ApiError extends Error {
  constructor(status, body) {
    const told = body && body.error || {};
    super(told.message || (typeof body === "string" && body) || `HTTP ${status}`);
    this.status = status; this.code = told.code || ""; this.detail = told.detail || {};
  }
}

export async function call(method, path, body, { signal } = {}) {
  const init = { method, headers: headers(), cache: "no-store", signal };
  if (body !== undefined) { init.body = JSON.stringify(body); init.headers["content-type"] = "application/json"; }
  let answer;
  try { answer = await fetch(path, init); }
  catch (error) { if (error.name === "AbortError") throw error; throw new ApiError(0, "The server does not answer."); }
  const text = await answer.text();
  let content = text;
  try { content = text ? JSON.parse(text) : null; } catch { /* not JSON */ }
  if (!answer.ok) {
    if (answer.status === 401) dispatchEvent(new CustomEvent("logged-out"));
    throw new ApiError(answer.status, content);
  }
  return content;
}
export const get = (path, options) => call("GET", path, undefined, options);
export const post = (path, body = {}, options) => call("POST", path, body, options);
export const put = (path, body = {}) => call("PUT", path, body);
export const del = path => call("DELETE", path);
export const topic = (name, rest = "") => `/v0/topics/${encodeURIComponent(name)}${rest}`;
export const consumer = (name, which, rest = "") => topic(name, `/consumers/${encodeURIComponent(which)}${rest}`);

// All pages of a list, up to a bound that the page then names.
export async function all(path, field, most = 5000) {
  const found = []; let cursor = "";
  do {
    const joined = `${path}${path.includes("?") ? "&" : "?"}page_size=1000${cursor && "&cursor=" + encodeURIComponent(cursor)}`;
    const page = await get(joined);
    found.push(...page[field]); cursor = page.next_cursor || "";
  } while (cursor && found.length < most);
  return found;
}
