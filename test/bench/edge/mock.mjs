// A loopback endpoint in a process of its own: answers at once, or as a stream whose pace the request's `user` sets,
// such as "chunks=20,every=5,id=a7". Tells at /bench/aborts when streams were cut, and at /bench/peak how many ran.
// usage: node test/bench/edge/mock.mjs PORT
import { createServer } from "node:http";
import { nowMs } from "./measures.mjs";

const HEAD = { id: "chatcmpl-mock", created: 1, model: "mock" };
const USAGE = { prompt_tokens: 12, completion_tokens: 8, total_tokens: 20 };
/** About 0.9 kB, as a short answer of an engine is. */
const WHOLE = JSON.stringify({
  ...HEAD,
  object: "chat.completion",
  choices: [
    {
      index: 0,
      message: { role: "assistant", content: "the quick brown fox jumps over the lazy dog ".repeat(16) },
      logprobs: null,
      finish_reason: "stop",
    },
  ],
  usage: USAGE,
});

const event = (choices, more = {}) =>
  `data: ${JSON.stringify({ ...HEAD, object: "chat.completion.chunk", choices, ...more })}\n\n`;
const END = `${event([{ index: 0, delta: {}, finish_reason: "stop" }])}${event([], { usage: USAGE })}data: [DONE]\n\n`;

const aborts = {};
let open = 0;
let peak = 0;

function stream(response, user) {
  const pace = Object.fromEntries((user ?? "").split(",").map((pair) => pair.split("=")));
  const chunks = Number(pace.chunks ?? 20);
  let sent = 0;
  peak = Math.max(peak, ++open);
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = () => {
    response.write(event([{ index: 0, delta: { content: `w${sent} ` }, finish_reason: null }]));
    if (++sent < chunks) return;
    clearInterval(timer);
    response.end(END);
  };
  const timer = setInterval(send, Number(pace.every ?? 5));
  send();
  response.once("close", () => {
    open--;
    clearInterval(timer);
    if (!response.writableEnded && pace.id !== undefined) aborts[pace.id] = nowMs();
  });
}

createServer((request, response) => {
  if (request.method === "GET") {
    const told = request.url === "/bench/aborts" ? aborts : request.url === "/bench/peak" ? { peak } : null;
    response.writeHead(told === null ? 404 : 200, { "content-type": "application/json" }).end(JSON.stringify(told));
    if (request.url === "/bench/peak") peak = open;
    return;
  }
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const body = Buffer.concat(parts);
    if (body.includes('"stream":true')) stream(response, JSON.parse(body.toString()).user);
    else response.writeHead(200, { "content-type": "application/json" }).end(WHOLE);
  });
}).listen({ port: Number(process.argv[2]), host: "127.0.0.1", backlog: 4_096 });
