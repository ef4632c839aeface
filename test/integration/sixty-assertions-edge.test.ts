// Behaviours that the test suites of llama.cpp (L), vLLM (V), SGLang's gateway (S), paddler (P), Portkey (K), OpenAI's
// client (O), the inference extension (C) and OpenAI's schema (Y) agree on, as far as they concern a gateway: with the
// `openai` client and raw requests through the edge to scripted machines. The number before each is its place in the
// list of sixty; the engine's share stands in sixty-assertions-engine.test.ts. Left out: of 55, eviction and loading on
// demand, and of 57 a picker of its own, of which this product has none.
import OpenAI, { APIError, AuthenticationError, NotFoundError } from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { EdgeConfigInput } from "../../edge/config.ts";
import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import { INFERENCE_ROUTES } from "../../shared/openai/request-envelope.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { hostReport } from "../support/fleet-report.ts";
import { faultsOf, type OpenAiAnswer } from "../support/openai-schemas.ts";
import {
  answerOfFive,
  chunkText,
  endOfStream,
  FIVE_WORDS,
  ScriptedEndpoint,
  streamOf,
  type Script,
} from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user" as const, content: "Count." }] };
const SLOTS = 2;
const QUEUE = 3;

let machine: ScriptedEndpoint;
let pair: [ScriptedEndpoint, ScriptedEndpoint];
let edge: EdgeOnNode;
let client: OpenAI;

const config = (router: EdgeConfigInput["router"] = {}): EdgeConfigInput => ({
  endpoints: [
    { id: "one", url: machine.url, models: ["m"], slots: SLOTS },
    ...pair.map(({ url }, place) => ({ id: `pair-${place + 1}`, url, models: ["pair"], slots: SLOTS })),
  ],
  auth: { default_rpm: 0, default_tpm: 0, cache_ttl: "1ms", flush_interval: "20ms" },
  router: { failure_threshold: 1_000, admission: { queue_capacity_per_band: QUEUE }, ...router },
  drain_timeout: "1s",
});

beforeAll(async () => {
  machine = await ScriptedEndpoint.start();
  pair = [await ScriptedEndpoint.start(), await ScriptedEndpoint.start()];
  edge = await EdgeOnNode.start(config());
  client = new OpenAI({ baseURL: edge.urls.baseUrl, apiKey: edge.key, maxRetries: 0 });
});
afterAll(async () => {
  await edge.idle();
  await edge.remove();
  await Promise.all([machine, ...pair].map((one) => one.stop()));
});
beforeEach(() => {
  for (const one of [machine, ...pair]) {
    one.script = answerOfFive;
    one.seen.length = 0;
  }
});

const post = (body: unknown = question, signal?: AbortSignal, route = "/chat/completions"): Promise<Response> =>
  edge.post(route, body, signal === undefined ? {} : { signal });
/** A refusal's status and code; its body must be the envelope and nothing else. */
async function refusal(answer: Response): Promise<[number, string]> {
  const body: { error: { code: string } } = JSON.parse(await answer.text());
  expect(faultsOf("error", body)).toEqual([]);
  expect(answer.headers.get("content-type")).toMatch(/^application\/json/);
  return [answer.status, body.error.code];
}
const waiting = (count: number): Promise<void> =>
  until(`${count} wait`, async () => (await edge.metric('steerage_queue_depth{band="default"}')) === count);
const hasSeen = (one: ScriptedEndpoint, count: number): Promise<void> =>
  until(`the machine has ${count}`, () => one.seen.length === count);

/** Answers only when the test says so. */
function holding(): { readonly held: (() => void)[] } {
  const held: (() => void)[] = [];
  machine.script = (request, response) => void held.push(() => answerOfFive(request, response));
  return { held };
}
/** A stream that goes on until its client leaves. */
const endless: Script = async (_request, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  while (!response.destroyed) {
    response.write(chunkText({ content: "word " }));
    await new Promise((resolve) => setImmediate(resolve));
  }
};

describe("shapes of answers that pass through", () => {
  it("[1] [2] [4] of chat, chunks and models keep to OpenAI's schemas", async () => {
    expect(faultsOf("chatCompletion", await (await post()).json())).toEqual([]);
    const text = await (await post({ ...question, stream: true, stream_options: { include_usage: true } })).text();
    const chunks = text.split("\n\n").filter((frame) => frame.startsWith("data: {"));
    expect(chunks).toHaveLength(FIVE_WORDS.length + 2);
    for (const chunk of chunks) expect(faultsOf("chatChunk", JSON.parse(chunk.slice("data: ".length)))).toEqual([]);
    expect(faultsOf("modelList", { object: "list", data: (await client.models.list()).data })).toEqual([]);
  });

  it.each<[string, OpenAiAnswer, object]>([
    [
      "/completions",
      "textCompletion",
      {
        id: "cmpl-1",
        object: "text_completion",
        created: 1,
        model: "m",
        choices: [{ index: 0, text: "one", logprobs: null, finish_reason: "length" }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      },
    ],
    [
      "/embeddings",
      "embeddings",
      {
        object: "list",
        model: "m",
        data: [{ object: "embedding", index: 0, embedding: [0.6, 0.8] }],
        usage: { prompt_tokens: 1, total_tokens: 1 },
      },
    ],
  ])("[1] [40] of %s come as the machine wrote them", async (route, kind, written) => {
    machine.script = (_request, response) =>
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(written));
    const answer: unknown = await (await post({ model: "m", prompt: "x", input: "x" }, undefined, route)).json();
    expect(faultsOf(kind, answer)).toEqual([]);
    expect(answer).toEqual(written);
  });

  it("[3] of errors have four keys, whoever refused and wherever", async () => {
    const codes = [await refusal(await fetch(`${edge.urls.baseUrl}/models`)), await refusal(await post("{"))];
    machine.script = (_request, response) => response.writeHead(400).end('{"error":{"message":"no","code":17}}');
    codes.push(await refusal(await post()));
    machine.script = (_request, response) => response.writeHead(500).end("<html>");
    codes.push(await refusal(await post()));
    expect(codes).toEqual([
      [401, "missing_api_key"],
      [400, "invalid_json"],
      [400, "invalid_value"],
      [502, "upstream_error"],
    ]);
    machine.script = streamOf([chunkText({ content: "a" })]);
    const last = (await (await post({ ...question, stream: true })).text()).trimEnd().split("\n\n").at(-1) ?? "";
    expect(faultsOf("error", JSON.parse(last.slice("data: ".length)))).toEqual([]);
  });
});

describe("requests that are none", () => {
  it.each(INFERENCE_ROUTES)("[26] a body of %s that is a text, list, number or null is 400", async (route) => {
    for (const body of ['"x"', "[]", "[{}]", "42", "null", "true"])
      expect(await refusal(await post(body, undefined, route.slice(3)))).toEqual([400, "invalid_body"]);
    expect(machine.seen).toEqual([]);
  });

  it("[47] a picture from a machine's own disk is refused, and a path leads nowhere but to models", async () => {
    for (const url of ["file:///etc/passwd", "/etc/passwd", "FILE://localhost/etc/passwd", "ftp://x/y"]) {
      const content = [
        { type: "text", text: "see" },
        { type: "image_url", image_url: { url } },
      ];
      expect(await refusal(await post({ ...question, messages: [{ role: "user", content }] }))).toEqual([
        400,
        "invalid_value",
      ]);
    }
    expect(machine.seen).toEqual([]);
    const content = [{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }];
    expect((await post({ ...question, messages: [{ role: "user", content }] })).status).toBe(200);
    for (const path of ["/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/%2e%2e/%2e%2e/etc/passwd"]) {
      const raw = await edge.raw(
        `GET ${path} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\nAuthorization: Bearer ${edge.key}\r\n\r\n`,
      );
      expect(raw).toMatch(/^HTTP\/1\.1 404 [^]*"code":"(?:model_not_found|route_not_found)"/);
    }
  });

  it("[56] an unknown model fails before any content, streamed or not", async () => {
    for (const stream of [false, true])
      expect(await refusal(await post({ ...question, model: "nope", stream }))).toEqual([404, "model_not_found"]);
    await expect(client.chat.completions.create({ ...question, model: "nope" })).rejects.toThrow(NotFoundError);
  });
});

describe("who asks", () => {
  it("[43] health is public and the model list is not", async () => {
    expect((await fetch(`${edge.origin}/health`)).status).toBe(200);
    expect(await refusal(await fetch(`${edge.urls.baseUrl}/models`))).toEqual([401, "missing_api_key"]);
  });

  it("[44] a wrong key is an authentication error to the client", async () => {
    const stranger = new OpenAI({ baseURL: edge.urls.baseUrl, apiKey: "sk-st-wrong", maxRetries: 0 });
    await expect(stranger.chat.completions.create(question)).rejects.toThrow(AuthenticationError);
    await expect(stranger.models.list()).rejects.toMatchObject({
      code: "invalid_api_key",
      type: "authentication_error",
    });
  });

  it("[45] a key counts as Bearer and in no other header", async () => {
    for (const name of ["x-api-key", "api-key", "x-authorization"]) {
      const answer = await fetch(`${edge.urls.baseUrl}/models`, { headers: { [name]: edge.key } });
      expect(await refusal(answer)).toEqual([401, "missing_api_key"]);
    }
    expect(
      (await fetch(`${edge.urls.baseUrl}/models`, { headers: { authorization: `bearer ${edge.key}` } })).status,
    ).toBe(200);
  });

  it("[46] a preflight is answered with origin, methods and headers", async () => {
    const answer = await fetch(`${edge.urls.baseUrl}/chat/completions`, {
      method: "OPTIONS",
      headers: {
        origin: "https://page.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
      },
    });
    const told = ["origin", "methods", "headers"].map((what) => answer.headers.get(`access-control-allow-${what}`));
    expect([answer.status, ...told]).toEqual([204, "*", "GET, HEAD, POST, OPTIONS", "authorization"]);
  });
});

describe("clients that leave", () => {
  it("[48] [60] in a stream stop the machine, however they leave", async () => {
    machine.script = endless;
    const leaving = new AbortController();
    const reader = (await post({ ...question, stream: true }, leaving.signal)).body?.getReader();
    for (let read = 0; read < 3; read++) await reader?.read();
    leaving.abort();
    await machine.seen[0]?.aborted;
    let chunks = 0;
    for await (const { choices } of await client.chat.completions.create({ ...question, stream: true })) {
      chunks += choices.length;
      if (chunks === 3) break;
    }
    await machine.seen[1]?.aborted;
    expect(machine.seen).toHaveLength(2);
    await edge.idle();
  });

  it.each([true, false])("[49] before the first chunk do the same; stream: %s", async (stream) => {
    machine.script = () => undefined;
    const leaving = new AbortController();
    const left = post({ ...question, stream }, leaving.signal).catch(() => "left");
    await hasSeen(machine, 1);
    leaving.abort();
    expect(await left).toBe("left");
    await machine.seen[0]?.aborted;
    await edge.idle();
  });

  it("[50] after the end do no harm", async () => {
    const leaving = new AbortController();
    const answer = await post({ ...question, stream: true }, leaving.signal);
    expect(await answer.text()).toContain("[DONE]");
    leaving.abort();
    expect(await edge.rowOf(answer)).toMatchObject({ outcome: "completed", completionTokens: 5 });
    expect((await post()).status).toBe(200);
  });

  it("[51] leave those beside them whole", async () => {
    let go: () => void = () => undefined;
    machine.script = (request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(chunkText({ content: "word " }));
      if (request.body.includes("stays")) go = () => response.end(chunkText({ content: "end" }) + endOfStream());
    };
    const stays = await post({ ...question, stream: true, user: "stays" });
    const leaving = new AbortController();
    const leaves = await post({ ...question, stream: true, user: "leaves" }, leaving.signal);
    await leaves.body?.getReader().read();
    leaving.abort();
    await machine.seen[1]?.aborted;
    go();
    expect(await stays.text()).toBe(
      `${chunkText({ content: "word " })}${chunkText({ content: "end" })}${chunkText({}, "stop")}data: [DONE]\n\n`,
    );
  });

  it("[52] while they wait are never sent on, and the queue is shorter by them", async () => {
    const { held } = holding();
    const running = Array.from({ length: SLOTS }, () => post());
    await hasSeen(machine, SLOTS);
    const leaving = new AbortController();
    const left = post({ ...question, user: "left" }, leaving.signal).catch(() => "left");
    await waiting(1);
    leaving.abort();
    expect(await left).toBe("left");
    await waiting(0);
    for (const answer of held.splice(0)) answer();
    for (const answer of await Promise.all(running)) expect(answer.status).toBe(200);
    await edge.idle();
    expect(machine.seen.map(({ body }) => body).join("")).not.toContain("left");
  });
});

describe("queues", () => {
  it("[53] [55] that are full refuse at once; whoever waits goes in the order of coming", async () => {
    const { held } = holding();
    const calls = Array.from({ length: SLOTS }, () => post());
    await hasSeen(machine, SLOTS);
    for (let place = 0; place < QUEUE; place++) {
      calls.push(post({ ...question, user: `waiter-${place}` }));
      await waiting(place + 1);
    }
    const refused = await post();
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect(await refusal(refused)).toEqual([429, "queue_full"]);
    for (let seen = SLOTS; seen < SLOTS + QUEUE; seen++) {
      held.shift()?.();
      await hasSeen(machine, seen + 1);
    }
    for (const answer of held.splice(0)) answer();
    for (const answer of await Promise.all(calls)) expect(answer.status).toBe(200);
    const order = machine.seen.slice(SLOTS).map(({ body }) => /waiter-\d/.exec(body)?.[0]);
    expect(order).toEqual(["waiter-0", "waiter-1", "waiter-2"]);
  });

  it("[53] [58] a machine that says nothing more is 504, and inside a stream its last event", async () => {
    const impatient = await EdgeOnNode.start(
      config({ timeouts: { first_token: "2s", generation: "300ms", idle: "300ms" } }),
    );
    try {
      machine.script = () => undefined;
      expect(await refusal(await impatient.post("/chat/completions", question))).toEqual([504, "generation_timeout"]);
      expect(await refusal(await impatient.post("/chat/completions", { ...question, stream: true }))).toEqual([
        504,
        "first_token_timeout",
      ]);
      machine.script = (_request, response) =>
        response.writeHead(200, { "content-type": "text/event-stream" }).write(chunkText({ content: "a" }));
      const cut = await (await impatient.post("/chat/completions", { ...question, stream: true })).text();
      expect(cut).toMatch(/data: \{"error":\{[^\n]*"code":"idle_timeout"\}\}\n\n$/);
    } finally {
      await impatient.remove();
    }
  });

  it("[54] a request that waits is answered when a machine joins", async () => {
    const token = await edge.enrolHost("gpu");
    const report = async (seq: number, state: "starting" | "ready"): Promise<void> => {
      const answer = await fetch(`${edge.urls.agentUrl}/agent/v1/reports`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
        body: JSON.stringify(hostReport({ seq, at: Date.now(), url: machine.url }, { model: "joins", state })),
      });
      expect(answer.status).toBe(200);
    };
    await report(1, "starting");
    const asked = post({ ...question, model: "joins" });
    await waiting(1);
    await report(2, "ready");
    expect((await asked).status).toBe(200);
  });
});

describe("choice and retries", () => {
  it("[57] traffic goes where the answer says, and goes on when machines tell no load", async () => {
    const routes: string[] = [];
    for (let call = 0; call < 6; call++) {
      const answer = await post({ ...question, model: "pair" });
      expect(answer.status).toBe(200);
      routes.push(answer.headers.get("x-steerage-route") ?? "");
    }
    // No metrics page here has ever been there.
    const said = [1, 2].map((place) => routes.filter((route) => route === `pair-${place}/pair;attempts=1`).length);
    expect(said).toEqual(pair.map(({ seen }) => seen.length));
    expect(machine.seen).toEqual([]);
  });

  it.each([
    [400, 1],
    [500, 1],
    [502, 2],
    [503, 2],
  ])("[58] status %s is tried on %s machines, and the last one's words are told", async (status, tries) => {
    for (const one of pair)
      one.script = (_request, response) =>
        response
          .writeHead(status)
          .end(JSON.stringify({ error: { message: `no ${status}`, type: "t", param: null, code: null } }));
    const answer = await post({ ...question, model: "pair" });
    expect(await answer.clone().json()).toMatchObject({ error: { message: `no ${status}` } });
    expect((await refusal(answer))[0]).toBe(status);
    expect(pair[0].seen.length + pair[1].seen.length).toBe(tries);
    if (status === 503)
      await until("they are asked again", async () => {
        for (const one of pair) one.script = answerOfFive;
        return (await post({ ...question, model: "pair" })).status === 200;
      });
  });

  it("[59] the client comes back when it was told to, and not where it was told not to", async () => {
    const atMs: number[] = [];
    const patient = (apiKey: string): OpenAI =>
      new OpenAI({
        baseURL: edge.urls.baseUrl,
        apiKey,
        maxRetries: 1,
        fetch: (...request) => {
          atMs.push(performance.now());
          return fetch(...request);
        },
      });
    machine.script = (_request, response) => {
      machine.script = answerOfFive;
      response.destroy();
    };
    expect((await patient(edge.key).chat.completions.create(question)).choices).toHaveLength(1);
    const [first = 0, second = 0] = atMs.splice(0);
    // Retry-After was one second.
    expect(second - first).toBeGreaterThan(990);
    const broke = await edge.newKey({ limits: { ...NO_SCOPE_LIMITS, budgetNanoUsd: "0" } });
    await expect(patient(broke).chat.completions.create(question)).rejects.toMatchObject({
      code: "insufficient_quota",
    });
    expect(atMs).toHaveLength(1);
  });
});

describe("many at once", () => {
  it("[42] embeddings of parallel clients are never mixed", async () => {
    const parked: (() => void)[] = [];
    machine.script = (request, response) => {
      const { input }: { input: number[][] } = JSON.parse(request.body);
      parked.push(() => {
        const data = input.map((embedding, index) => ({ object: "embedding", index, embedding }));
        const usage = { prompt_tokens: input.length, total_tokens: input.length };
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ object: "list", model: "m", data, usage }));
      });
      // The later of two goes first.
      if (parked.length === SLOTS || machine.seen.length === 5)
        for (const answer of parked.splice(0).toReversed()) answer();
    };
    const inputs = Array.from({ length: 5 }, (_, place) => [[place], [place + 100]]);
    const answers = await Promise.all(
      inputs.map((input) => client.embeddings.create({ model: "m", input, encoding_format: "float" })),
    );
    expect(answers.map(({ data }) => data.map(({ embedding }) => embedding))).toEqual(inputs);
  });

  it.each([
    ["CRLF", (text: string) => [text.replaceAll("\n", "\r\n")]],
    ["CR", (text: string) => [text.replaceAll("\n", "\r")]],
    ["split bytes", (text: string) => Array.from(Buffer.from(text), (byte) => Buffer.from([byte]))],
    ["several data lines", (text: string) => [text.replaceAll(',"created"', '\ndata: ,"created"')]],
    ["events without data", (text: string) => [text.replaceAll("data: {", "event: ping\n\ndata\n\ndata: {")]],
  ])("[60] a machine's %s survive the way to the client", async (_what, variant) => {
    machine.script = streamOf(variant(chunkText({ content: "é日" }) + chunkText({ content: "😀" }) + endOfStream()));
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...question, stream: true }))
      text += chunk.choices[0]?.delta.content ?? "";
    expect(text).toBe("é日😀");
  });

  it("[60] an error in the middle of a stream is raised by the client", async () => {
    machine.script = streamOf([chunkText({ content: "a" }), 'data: {"error":{"message":"broke"}}\n\n']);
    let text = "";
    const reading = async (): Promise<void> => {
      for await (const chunk of await client.chat.completions.create({ ...question, stream: true }))
        text += chunk.choices[0]?.delta.content ?? "";
    };
    await expect(reading()).rejects.toThrow(APIError);
    expect(text).toBe("a");
  });
});
