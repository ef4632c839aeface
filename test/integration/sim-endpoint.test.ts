import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chatChunkSchema, chatCompletionSchema } from "../../shared/openai/chat.ts";
import { textCompletionSchema } from "../../shared/openai/completions.ts";
import { embeddingResponseSchema } from "../../shared/openai/embeddings.ts";
import { REPOSITORY } from "../support/source-tree.ts";

const BACKEND = path.join(REPOSITORY, "dist/backend/main.js");
const MESSAGES = [{ role: "user" as const, content: "tell me of the sea" }];

describe("the scripted engine as an endpoint", () => {
  let child: ChildProcess;
  let origin: string;
  let client: OpenAI;

  beforeAll(async () => {
    const flags = [
      "--port",
      "0",
      "--output-tokens",
      "6",
      "--slots",
      "2",
      "--max-pending",
      "0",
      "--context-length",
      "50",
    ];
    child = spawn(process.execPath, [BACKEND, "sim", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
    if (child.stdout === null) throw new Error("no stdout");
    const [line]: unknown[] = await once(child.stdout, "data");
    origin = /http:\/\/[^/]+/.exec(String(line))?.[0] ?? "";
    client = new OpenAI({ baseURL: `${origin}/v1`, apiKey: "none", maxRetries: 0 });
  });
  afterAll(() => {
    child.kill("SIGKILL");
  });

  const post = async (route: string, body: unknown, init: RequestInit = {}): Promise<Response> =>
    fetch(`${origin}${route}`, { method: "POST", body: JSON.stringify(body), ...init });
  const say = async (script: string, stream = false): Promise<Response> =>
    post("/v1/chat/completions", { model: `sim@${script}`, messages: MESSAGES, stream });
  const metric = async (name: string): Promise<number> => {
    const text = await (await fetch(`${origin}/metrics`)).text();
    return Number(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, "m").exec(text)?.[1]);
  };

  it("is understood by OpenAI's client and keeps to the wire schemas", async () => {
    const whole = await client.chat.completions.create({ model: "sim", messages: MESSAGES, seed: 3 });
    expect(() => chatCompletionSchema.parse(whole)).not.toThrow();
    expect(whole.usage).toMatchObject({ prompt_tokens: 8, completion_tokens: 6, total_tokens: 14 });
    let text = "";
    let usage: unknown = null;
    const stream = await client.chat.completions.create({
      model: "sim",
      messages: MESSAGES,
      seed: 3,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      expect(() => chatChunkSchema.parse(chunk)).not.toThrow();
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    expect(text).toBe(whole.choices[0]?.message.content);
    expect(usage).toMatchObject({
      prompt_tokens: 8,
      completion_tokens: 6,
      prompt_tokens_details: { cached_tokens: 7 },
    });
    const completion = await client.completions.create({ model: "sim", prompt: "once upon", max_tokens: 2 });
    expect(() => textCompletionSchema.parse(completion)).not.toThrow();
    const embedding = await client.embeddings.create({ model: "sim", input: ["a sailor"] });
    expect(() => embeddingResponseSchema.parse(embedding)).not.toThrow();
    expect(Math.hypot(...(embedding.data[0]?.embedding ?? []))).toBeCloseTo(1, 5);
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(["sim"]);
  });

  it("fails as it is told to", async () => {
    const busy = await say("status=503");
    expect([busy.status, busy.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await say("fail_rate=1")).status).toBe(500);
    const broken = await (await say("error_after=2", true)).text();
    expect(broken).toContain('"code":"engine_failed"');
    expect(broken).not.toContain("[DONE]");
    await expect(say("cut_after=2", true).then((response) => response.text())).rejects.toThrow(TypeError);
  });

  it("refuses what does not fit the window, with both numbers", async () => {
    const response = await post("/v1/completions", { model: "sim", prompt: "word ".repeat(60) });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { code: "context_length_exceeded", message: expect.stringMatching(/60.*50/) as unknown },
    });
  });

  it("shows load in vLLM's metrics, refuses beyond slots and queue, and frees slots of callers that leave", async () => {
    const abort = new AbortController();
    const hang = { model: "sim@hang", messages: MESSAGES };
    const hanging = [1, 2].map(() => post("/v1/chat/completions", hang, { signal: abort.signal }).catch(() => null));
    while ((await metric("vllm:num_requests_running")) < 2) await new Promise((resolve) => setTimeout(resolve, 10));
    expect((await post("/v1/chat/completions", { model: "sim", messages: MESSAGES })).status).toBe(503);
    abort.abort();
    await Promise.all(hanging);
    while ((await metric("vllm:num_requests_running")) > 0) await new Promise((resolve) => setTimeout(resolve, 10));
    const before = await metric("vllm:generation_tokens_total");
    await (await post("/v1/chat/completions", { model: "sim", messages: MESSAGES })).text();
    expect((await metric("vllm:generation_tokens_total")) - before).toBe(6);
  });

  it("ends cleanly on SIGTERM, with a stream open", async () => {
    const response = await post("/v1/completions", { model: "sim@tokens_per_second=1", prompt: "x", stream: true });
    await response.body?.getReader().read();
    const exit = once(child, "exit");
    child.kill("SIGTERM");
    expect(await exit).toEqual([0, null]);
  });
});
