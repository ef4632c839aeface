import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, type HostRequestInit, until } from "../support/host-process.ts";
import { REPOSITORY } from "../support/source-tree.ts";

const MODEL = "demo-storyteller-1m";
const DEMO = path.join(REPOSITORY, "backend/demo");
const answerSchema = z.object({ usage: z.object({ prompt_tokens: z.int(), completion_tokens: z.int() }) });

const chat = (extra: Record<string, unknown> = {}): string =>
  JSON.stringify({ model: MODEL, messages: [{ role: "user", content: "Tell me a story." }], max_tokens: 20, ...extra });

describe("a host in front of the native engine", () => {
  let edge: FakeEdge;
  let host: HostProcess;

  beforeAll(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    host = await HostProcess.start(edge, {
      models: [
        {
          name: MODEL,
          source: path.join(DEMO, `${MODEL}.q8_0.gguf`),
          saes: [{ id: "demo-l1", source: path.join(DEMO, "demo-l1") }],
        },
      ],
    });
    await until("the model is ready", () => edge.lastReport?.replicas[0]?.state === "ready");
  });
  afterAll(async () => {
    await host.stop();
    await edge.stop();
  });

  const ask = async (body: string, requestId: string, init: HostRequestInit = {}): Promise<Response> =>
    host.request(await edge.sign({ body, requestId, replica: MODEL, path: init.path }), body, init);
  /** The one entry of a request, once it is reported. */
  const entryOf = async (requestId: string) => {
    const entries = () => edge.ended.filter(({ request_id }) => request_id === requestId);
    await until(`${requestId} is reported`, () => entries().length > 0);
    return entries()[0];
  };

  it("reports the model's window, its SAE and its free cells", async () => {
    await until("cells are reported", () => (edge.lastReport?.replicas[0]?.free_kv_cells ?? 0) > 0);
    expect(edge.lastReport?.replicas[0]).toMatchObject({
      model: MODEL,
      engine: "native",
      context_length: 1_024,
      saes: [{ id: "demo-l1", layer: 1, d_sae: 512, hook_point: "blocks.1.hook_resid_post" }],
    });
  });

  it.each([
    ["a whole answer", chat()],
    ["a steered answer", chat({ steering: { sae_id: "demo-l1", features: [{ index: 501, strength: 30 }] } })],
  ])("bills what it tells the caller: %s", async (_name, body) => {
    const requestId = edge.newRequestId();
    const response = await ask(body, requestId);
    expect(response.status).toBe(200);
    const { usage } = answerSchema.parse(await response.json());
    const entry = await entryOf(requestId);
    expect(entry).toMatchObject({ outcome: "completed", exactness: "exact" });
    expect((entry?.computed_prompt ?? 0) + (entry?.cached_prompt ?? 0)).toBe(usage.prompt_tokens);
    expect(entry?.computed_completion).toBe(usage.completion_tokens);
  });

  it("gives an exact account of embeddings, and zeros for what it refuses", async () => {
    const embeddings = edge.newRequestId();
    const body = JSON.stringify({ model: MODEL, input: "a sailor" });
    expect((await ask(body, embeddings, { path: "/v1/embeddings" })).status).toBe(200);
    expect(await entryOf(embeddings)).toMatchObject({ exactness: "exact", computed_completion: 0 });
    const refused = edge.newRequestId();
    const steering = { sae_id: "demo-l1", features: [{ index: 99_999, strength: 1 }] };
    expect((await ask(chat({ steering }), refused)).status).toBe(400);
    expect(await entryOf(refused)).toMatchObject({ computed_prompt: 0, computed_completion: 0, exactness: "exact" });
  });

  it("gives an exact account of what its edge left", async () => {
    const requestId = edge.newRequestId();
    const abort = new AbortController();
    const response = await ask(chat({ stream: true, max_tokens: 900, ignore_eos: true }), requestId, {
      signal: abort.signal,
    });
    await response.body?.getReader().read();
    abort.abort();
    expect(await entryOf(requestId)).toMatchObject({ outcome: "cancelled", exactness: "exact" });
  });

  it("fails a stream cleanly when its engine is killed, and answers the next request", async () => {
    const requestId = edge.newRequestId();
    const streams = await Promise.all(
      Array.from({ length: 4 }, (_, place) =>
        ask(chat({ stream: true, max_tokens: 900, ignore_eos: true }), place === 0 ? requestId : edge.newRequestId()),
      ),
    );
    const [engine = 0] = host.enginePids();
    process.kill(engine, "SIGKILL");
    const texts = await Promise.all(streams.map((stream) => stream.text()));
    for (const text of texts) expect(text.trimEnd().split("\n\n").at(-1)).toContain("engine_crashed");
    expect(await entryOf(requestId)).toMatchObject({ outcome: "failed", exactness: "exact" });
    await until("the engine is back", () => {
      return edge.lastReport?.replicas[0]?.state === "ready" && host.enginePids()[0] !== engine;
    });
    expect((await ask(chat(), edge.newRequestId())).status).toBe(200);
  });
});
