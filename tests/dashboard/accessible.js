// What axe-core finds most, in our own words; returns what is wrong.
() => {
  const wrong = [], say = (node, why) => wrong.push(`${why}: ${node.outerHTML.slice(0, 120)}`);
  const seen = node => node.getClientRects().length > 0;
  const all = query => [...document.querySelectorAll(query)].filter(seen);
  const name = node => (node.getAttribute("aria-label") || node.textContent || "").trim()
    || (node.labels && [...node.labels].map(each => each.textContent).join(" ").trim())
    || node.getAttribute("title") || "";
  for (const node of all("button, a[href], summary, [role=button]")) if (!name(node)) say(node, "no name");
  for (const node of all("input, select, textarea")) if (!name(node)) say(node, "no label");
  for (const node of all("img")) if (!node.hasAttribute("alt")) say(node, "no alt");
  for (const node of all("svg[role=img]")) if (!node.getAttribute("aria-label")) say(node, "no label");
  for (const node of all("table")) {
    if (!node.caption) say(node, "no caption");
    if (node.querySelectorAll("th[scope]").length !== node.querySelectorAll("th").length) say(node, "no scope");
  }
  for (const node of all("[tabindex]")) if (Number(node.tabIndex) > 0) say(node, "own tab order");
  const ids = [...document.querySelectorAll("[id]")].map(node => node.id);
  for (const id of new Set(ids)) if (ids.filter(each => each === id).length > 1) wrong.push(`id twice: ${id}`);
  for (const node of document.querySelectorAll("[aria-controls]")) if (!document.getElementById(node.getAttribute("aria-controls"))) say(node, "controls nothing");
  if (all("h1").length !== 1) wrong.push(`${all("h1").length} h1`);
  if (!document.title || document.documentElement.lang !== "en") wrong.push("no title or language");
  for (const mark of ["main", "nav", "header"]) if (!document.querySelector(mark)) wrong.push(`no ${mark}`);
  for (const node of all("body *")) {
    if (!node.closest("main, nav, header, .skip, #toasts, dialog") && node.children.length === 0 && node.textContent.trim()) say(node, "outside of landmarks");
  }
  const parse = text => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const ground = node => { for (let at = node; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  for (const node of all("main *, header *")) {
    if (node.closest("svg") || ![...node.childNodes].some(each => each.nodeType === 3 && each.textContent.trim())) continue;
    const style = getComputedStyle(node);
    if (node.disabled || style.clipPath !== "none") continue;
    const [a, b] = [light(parse(style.color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) say(node, `contrast ${ratio.toFixed(2)}`);
  }
  return wrong;
}
