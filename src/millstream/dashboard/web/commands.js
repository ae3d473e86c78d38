// A message as a command: for curl, for our own command line, for nats-py.

const shell = text => `'${text.replaceAll("'", `'\\''`)}'`;
const python = text => JSON.stringify(text).replace(/[\u2028\u2029]/g, c => `\\u${c.charCodeAt(0).toString(16)}`);

export function commands(message, { request = false } = {}) {
  const payload = message.text ?? "", isBytes = message.text === undefined && message.base64 !== undefined;
  const headers = message.headers || [];
  const body = { subject: message.subject, ...(isBytes ? { base64: message.base64 } : { text: payload }) };
  if (headers.length) body.headers = Object.fromEntries(headers);
  const raw = isBytes ? `base64.b64decode(${python(message.base64)})` : `${python(payload)}.encode()`;
  const titles = headers.length ? `, headers=${JSON.stringify(Object.fromEntries(headers))}` : "";
  const nats = location.hostname.includes(":") ? `[${location.hostname}]` : location.hostname;
  return [
    ["curl", `curl -s ${location.origin}/v0/${request ? "request" : "publish"} -H 'content-type: application/json' \\\n  -d ${shell(JSON.stringify(body))}`],
    ["millstream", `millstream ${request ? "request" : "pub"} ${shell(message.subject)} ${isBytes ? `"$(base64 -d <<< ${message.base64})"` : shell(payload)}${headers.map(([k, v]) => ` -H ${shell(`${k}: ${v}`)}`).join("")}`],
    ["nats-py", `import asyncio${isBytes ? ", base64" : ""}\n\nimport nats\n\n\nasync def main():\n    nc = await nats.connect("nats://${nats}:4222")\n` +
      (request ? `    print((await nc.request(${python(message.subject)}, ${raw}${titles})).data)\n` : `    await nc.publish(${python(message.subject)}, ${raw}${titles})\n`) +
      `    await nc.drain()\n\n\nasyncio.run(main())\n`],
  ];
}
