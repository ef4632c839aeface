import { gzipSync } from "node:zlib";
import OpenAI, { APIError } from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { chatChunkSchema } from "../../shared/openai/chat.ts";
import { SseParser } from "../../shared/sse/parser.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, chunkText, endOfStream, ScriptedEndpoint, streamOf } from "../support/scripted-endpoint.ts";

const question = { model: "m", messages: [{ role: "user" as const, content: "Count." }] };
const DONE = "data: [DONE]\n\n";
const payload = (frame: string): string => frame.slice("data: ".length).trimEnd();

let endpoint: ScriptedEndpoint;
let edge: EdgeOnNode;

beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
    auth: { default_rpm: 0, default_tpm: 0, flush_interval: "20ms" },
    router: { keep_alive: "30ms", failure_threshold: 1_000 },
  });
});
afterAll(async () => {
  await edge.idle();
  await edge.remove();
  await endpoint.stop();
});
afterEach(() => {
  endpoint.script = answerOfFive;
  endpoint.seen.length = 0;
});

const stream = (more: object = {}): Promise<Response> =>
  edge.post("/chat/completions", { ...question, stream: true, ...more });
/** What the client gets, heartbeats of the edge left out. */
const frames = async (answer: Response): Promise<string[]> =>
  (await answer.text()).split(/(?<=\n\n)/).filter((frame) => !frame.startsWith(":"));
const contents = (all: readonly string[]): string =>
  all
    .filter((frame) => frame !== DONE)
    .map((frame) => chatChunkSchema.parse(JSON.parse(payload(frame))).choices[0]?.delta.content ?? "")
    .join("");
const client = (maxRetries = 0): OpenAI => new OpenAI({ baseURL: edge.urls.baseUrl, apiKey: edge.key, maxRetries });

describe("what a machine writes", () => {
  it.each([true, false])("byte by byte keeps its characters, usage asked for: %s (C001)", async (include_usage) => {
    const bytes = Buffer.from(chunkText({ content: "é日😀" }) + endOfStream());
    endpoint.script = streamOf(Array.from(bytes, (byte) => Buffer.from([byte])));
    const all = await frames(await stream({ stream_options: { include_usage } }));
    expect(contents(all)).toBe("é日😀");
    expect(all.at(-1)).toBe(DONE);
    expect(all).toHaveLength(include_usage ? 4 : 3);
  });

  it("cut inside an event, and two events glued together, come as whole events (C002)", async () => {
    const [one, two, three] = ["a", "b", "c"].map((content) => chunkText({ content }));
    endpoint.script = streamOf([`${one}`.slice(0, 20), `${one}`.slice(20), `${two}${three}`, endOfStream()]);
    const all = await frames(await stream());
    expect(all.slice(0, 3)).toEqual([one, two, three]);
    expect(all).toHaveLength(5);
  });

  it.each([
    ["CRLF", (text: string) => text.replaceAll("\n", "\r\n")],
    ["bare CR", (text: string) => text.replaceAll("\n", "\r")],
    ["no space after the colon", (text: string) => text.replaceAll("data: ", "data:")],
    ["several data lines", (text: string) => text.replaceAll(',"created"', '\ndata: ,"created"')],
    ["a byte order mark", (text: string) => `\uFEFF${text}`],
  ])("with %s is framed anew for every client (C003)", async (_what, variant) => {
    endpoint.script = streamOf([variant(chunkText({ content: "a" }) + chunkText({ content: "b" }) + endOfStream())]);
    const text = (await frames(await stream())).join("");
    expect(text).not.toMatch(/\r|\uFEFF/);
    const parser = new SseParser({ maxEventLength: 10_000 });
    const data = parser.push(text).map((event) => event.data);
    expect(data.filter((one) => one === "[DONE]")).toHaveLength(1);
    const texts = data
      .slice(0, -1)
      .map((one) => chatChunkSchema.parse(JSON.parse(one)).choices[0]?.delta.content ?? "");
    expect(texts).toEqual(["a", "b", ""]);
  });

  it("as comments never becomes an event, and the official client reads on (C004)", async () => {
    endpoint.script = streamOf([
      ": WAITING\n\n",
      chunkText({ content: "a" }),
      "data: : ping\n\n",
      ": WAITING\n\n",
      chunkText({ content: "b" }),
      endOfStream(),
    ]);
    let text = "";
    for await (const chunk of await client().chat.completions.create({ ...question, stream: true }))
      text += chunk.choices[0]?.delta.content ?? "";
    expect(text).toBe("ab");
  });

  it("as empty events is swallowed (C007)", async () => {
    const [one, two] = ["a", "b"].map((content) => chunkText({ content }));
    endpoint.script = streamOf([`${one}`, "data:\n\n", "event: ping\ndata:\n\n", "data\n\n", `${two}`, endOfStream()]);
    const all = await frames(await stream());
    expect(all.slice(0, 2)).toEqual([one, two]);
    expect(all).toHaveLength(4);
  });

  it("as usage comes once, last, and only to those who asked; the row has it either way (C008)", async () => {
    const asked = await stream({ stream_options: { include_usage: true } });
    const chunks = (await frames(asked)).slice(0, -1).map((frame) => chatChunkSchema.parse(JSON.parse(payload(frame))));
    const last = chunks.pop();
    expect(last).toMatchObject({ choices: [], usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe("stop");
    for (const chunk of chunks) expect(chunk.usage ?? null).toBeNull();
    const unasked = await stream();
    expect((await frames(unasked)).join("")).not.toContain('"usage"');
    for (const answer of [asked, unasked])
      expect(await edge.rowOf(answer)).toMatchObject({ promptTokens: 7, completionTokens: 5, exactness: "exact" });
  });

  it("keeps one id, one time and one model in all chunks, and the role in the first alone (C017)", async () => {
    endpoint.script = streamOf([
      chunkText({ role: "assistant", content: "" }),
      ...["a", "b", "c", "d", "e"].map((content) => chunkText({ content })),
      endOfStream(),
    ]);
    const all = (await frames(await stream())).slice(0, -1);
    const chunks = all.map((frame) => chatChunkSchema.parse(JSON.parse(payload(frame))));
    expect(new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`))).toEqual(
      new Set(["chatcmpl-1 1 m"]),
    );
    expect(chunks.map(({ choices }) => choices[0]?.delta.role === "assistant")).toEqual([
      true,
      ...chunks.slice(1).map(() => false),
    ]);
    expect(chunks.filter(({ choices }) => choices[0]?.finish_reason).map((chunk) => chunks.indexOf(chunk))).toEqual([
      6,
    ]);
  });
});

describe("a stream that waits", () => {
  /** Holds the answer until the test lets it go on. */
  function held(before: string | null) {
    let go: () => void = () => undefined;
    endpoint.script = (_request, response) => {
      if (before !== null) {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(before);
      }
      go = () => {
        if (before === null) response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(chunkText({ content: "a" }) + endOfStream());
      };
    };
    return () => go();
  }

  it.each([
    ["sends no head", null],
    ["sends comments only", ": WAITING\n\n"],
  ])(
    "has its head by the first heartbeat, and heartbeats that no parser dispatches, while the machine %s (C005, C006)",
    async (_what, before) => {
      const letGo = held(before);
      const answer = await stream();
      expect(answer.status).toBe(200);
      const parts = answer.body?.pipeThrough(new TextDecoderStream()) ?? [];
      let text = "";
      let waiting = true;
      for await (const part of parts) {
        text += part;
        if (!waiting || text.split("\n").filter((line) => line.startsWith(":")).length < 3) continue;
        expect(text.replace(/(?::[^\n]*\n\n)+/, "")).toBe("");
        waiting = false;
        letGo();
      }
      expect(waiting).toBe(false);
      expect(text.endsWith(DONE)).toBe(true);
      // Some clients dispatch on every blank line once they remember an id: there must never be one.
      for (const line of text.split("\n")) expect(line).toMatch(/^(?:|:.*|data: .+)$/);
      const parser = new SseParser({ maxEventLength: 10_000 });
      expect(parser.push(text).map(({ data }) => data.slice(0, 6))).toEqual(['{"id":', '{"id":', "[DONE]"]);
    },
  );
});

describe("a stream that ends badly", () => {
  const CUT: readonly [string, readonly string[]][] = [
    ["a finish reason that no client knows (C013)", [chunkText({ content: "a" }), chunkText({}, "abort"), DONE]],
    [
      "tool calls and no finish reason (C016)",
      [
        chunkText({ role: "assistant" }),
        chunkText({
          tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "f", arguments: "{}" } }],
        }),
        DONE,
      ],
    ],
    ["no end mark (C016)", [chunkText({ content: "a" })]],
    ["an error as a data frame (C097)", [`data: ${JSON.stringify({ error: { message: "x".repeat(2_000) } })}\n\n`]],
    ["an error as plain words (C097)", [chunkText({ content: "a" }), `data: upstream failed ${"x".repeat(2_000)}\n\n`]],
  ];

  it.each(CUT)("%s: the client hears of it, and the row says so", async (_what, parts) => {
    endpoint.script = streamOf(parts);
    const answer = await stream();
    const all = await frames(answer);
    expect(all).not.toContain(DONE);
    expect(JSON.parse(payload(all.at(-1) ?? ""))).toMatchObject({
      error: { message: expect.any(String), type: "server_error", param: null, code: expect.any(String) },
    });
    const row = await edge.rowOf(answer);
    expect(row).toMatchObject({ outcome: "failed", backend: "other" });
    // Words of an error are not output.
    expect(row.completionTokens).toBeLessThanOrEqual(1);
    const reading = async (): Promise<void> => {
      for await (const chunk of await client().chat.completions.create({ ...question, stream: true })) void chunk;
    };
    await expect(reading()).rejects.toThrow(APIError);
  });
});

describe("an answer that a machine compressed although it was asked not to", () => {
  it.each([200, 429])("with status %s reaches the client as something it can read (C019)", async (status) => {
    const body = gzipSync(JSON.stringify({ error: { message: "packed" } }));
    endpoint.script = (_request, response) => {
      const head = { "content-type": "application/json", "content-encoding": "gzip", "content-length": body.length };
      response.writeHead(status, head).end(body);
    };
    const answer = await edge.post("/chat/completions", question, { headers: { "accept-encoding": "gzip" } });
    expect(answer.headers.get("content-encoding")).toBeNull();
    expect((await errorBodyOf(answer)).code).toBe(status === 200 ? "upstream_error" : "no_replica_available");
    expect(endpoint.seen[0]?.headers["accept-encoding"]).toBe("identity");
  });
});

describe("stream_options without a stream", () => {
  it.each(["/chat/completions", "/completions"])(
    "is refused by %s before any machine hears of it (C010)",
    async (route) => {
      const body = { model: "m", messages: question.messages, prompt: "x", stream_options: { include_usage: true } };
      for (const more of [{}, { stream: false }]) {
        const answer = await edge.post(route, { ...body, ...more });
        expect(answer.status).toBe(400);
        expect(await errorBodyOf(answer)).toMatchObject({ type: "invalid_request_error", param: "stream_options" });
      }
      expect(endpoint.seen).toEqual([]);
    },
  );
});
