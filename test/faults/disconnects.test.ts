import { connect } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { answerOfFive, chunkText, endOfStream, FIVE_WORDS, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };

/** One slot: whatever is not given back shows at once. */
let endpoint: ScriptedEndpoint;
let edge: EdgeOnNode;
beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [{ id: "other", url: endpoint.url, models: ["m"], slots: 1 }],
    auth: { default_rpm: 0, default_tpm: 0, flush_interval: "20ms" },
    router: { failure_threshold: 1_000, timeouts: { client_stall: "300ms" } },
  });
});
afterAll(async () => {
  await edge.remove();
  await endpoint.stop();
});
afterEach(() => {
  endpoint.script = answerOfFive;
  endpoint.seen.length = 0;
});

const waiting = (count: number): Promise<void> =>
  until(`${count} wait`, async () => (await edge.metric('steerage_queue_depth{band="default"}')) === count);

describe("a client that leaves", () => {
  it("while it waits is never sent on, and disturbs neither the one that runs nor the next (C025)", async () => {
    const words: ((word: string | null) => void)[] = [];
    endpoint.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      words.push((word) =>
        word === null ? response.end(endOfStream()) : response.write(chunkText({ content: word })),
      );
    };
    const running = await edge.post("/chat/completions", { ...question, stream: true });
    const text = running.text();
    for (let round = 0; round < 10; round++) {
      const leaving = new AbortController();
      const left = edge.post("/chat/completions", question, { signal: leaving.signal }).catch(() => "left");
      await waiting(1);
      words[0]?.(`${round} `);
      leaving.abort();
      expect(await left).toBe("left");
      await waiting(0);
    }
    words[0]?.(null);
    const wanted = Array.from({ length: 10 }, (_, round) => chunkText({ content: `${round} ` })).join("");
    expect(await text).toBe(`${wanted}${chunkText({}, "stop")}data: [DONE]\n\n`);
    expect(endpoint.seen).toHaveLength(1);
    await edge.idle();
  });

  const ROUTES: readonly [string, string, object][] = [
    ["a chat stream", "/chat/completions", { ...question, stream: true }],
    ["a chat answer", "/chat/completions", question],
    ["a completion", "/completions", { model: "m", prompt: "Count." }],
    ["embeddings", "/embeddings", { model: "m", input: "Count." }],
  ];

  it.each(ROUTES)(
    "of %s gives its place back, as do those that end and those that fail (C030)",
    async (_what, route, body) => {
      const call = (signal?: AbortSignal): Promise<Response> =>
        edge.post(route, body, signal === undefined ? {} : { signal });
      expect((await (await call()).text()).length).toBeGreaterThan(0);

      endpoint.script = () => undefined;
      const leaving = new AbortController();
      const left = call(leaving.signal).catch(() => "left");
      await until("the machine has it", () => endpoint.seen.length === 2);
      leaving.abort();
      expect(await left).toBe("left");
      await endpoint.seen[1]?.aborted;

      endpoint.script = (_request, response) => response.destroy();
      const failed = await call();
      expect(failed.status).toBe(502);
      await failed.text();

      endpoint.script = answerOfFive;
      const last = await call();
      expect(last.status).toBe(200);
      await last.text();
      await edge.idle();
    },
  );
});

describe("a client that reads nothing", () => {
  it("loses its connection after the stall limit; the machine is let go and the next is served whole (C029)", async () => {
    const chunk = chunkText({ content: "x".repeat(64 * 1_024) });
    endpoint.script = async (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      let goOn: (value?: unknown) => void = () => undefined;
      response.on("drain", () => goOn()).once("close", () => goOn());
      while (!response.destroyed) if (!response.write(chunk)) await new Promise((resolve) => (goOn = resolve));
    };
    const { hostname, port } = new URL(edge.origin);
    const body = JSON.stringify({ ...question, stream: true });
    const stalled = connect(Number(port), hostname, () => {
      stalled.write(
        `POST /v1/chat/completions HTTP/1.1\r\nHost: edge\r\nContent-Type: application/json\r\n` +
          `Authorization: Bearer ${edge.key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
    });
    stalled.on("error", () => undefined).pause();
    await until("the machine has it", () => endpoint.seen.length === 1);
    const answered = edge.post("/chat/completions", question).then((answer) => answer.json());
    await endpoint.seen[0]?.aborted;
    endpoint.script = answerOfFive;
    expect(await answered).toMatchObject({ choices: [{ message: { content: FIVE_WORDS.join("") } }] });
    stalled.destroy();
    await edge.idle();
  });
});
