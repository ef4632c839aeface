import { readFileSync } from "node:fs";
import { parseList } from "structured-headers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { chatCompletionSchema } from "../../shared/openai/chat.ts";
import { activationResultSchema } from "../../shared/steering/activations.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon, repositoryFile } from "../support/native-harness.ts";

const SEA = 501;
let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), {
    model: "demo",
    model_path: DEMO_Q8,
    saes: ["demo-l1", "demo-l2"].map((id) => ({ id, path: repositoryFile(`backend/demo/${id}`), layer: null })),
    profiles: [
      { name: "sea", steering: { sae_id: "demo-l1", features: [{ index: SEA, strength: 20 }] } },
      { name: "elsewhere", steering: { sae_id: "demo-l9", features: [{ index: 1, strength: 20 }] } },
    ],
    slots: 4,
    max_pending: 10,
  });
});
afterAll(() => engine.stop());

const story = (topic: string) => ({
  model: "demo",
  messages: [{ role: "user", content: `Tell me a story of ${topic}.` }],
  max_tokens: 24,
  temperature: 0,
  ignore_eos: true,
});
const onSea = (feature: object, more: object = {}) => ({
  steering: { sae_id: "demo-l1", features: [{ index: SEA, ...feature }], ...more },
});

/** Requests with the same salt share prefixes with each other only. */
async function chat(body: object, salt = "") {
  const response = await engine.post("/v1/chat/completions", body, { headers: { "x-steerage-cache-salt": salt } });
  const answer = chatCompletionSchema.parse(await response.json());
  const receipt = response.headers.get("x-steerage-steering") ?? "";
  return {
    answer,
    receipt,
    text: answer.choices[0]?.message.content ?? "",
    cached: answer.usage.prompt_tokens_details?.cached_tokens ?? 0,
    prompt: answer.usage.prompt_tokens,
  };
}

async function refusal(body: object) {
  const response = await engine.post("/v1/chat/completions", { ...story("nothing"), ...body });
  const { error } = z
    .object({ error: z.object({ code: z.string(), param: z.string().nullable() }) })
    .parse(await response.json());
  return { status: response.status, ...error };
}

const logprobsOf = (answer: { choices: { logprobs?: unknown }[] }): number[] =>
  z
    .object({ content: z.array(z.object({ logprob: z.number() })) })
    .parse(answer.choices[0]?.logprobs)
    .content.map(({ logprob }) => logprob);

const topLogprobsOf = (answer: { choices: { logprobs?: unknown }[] }): Map<string, number> =>
  new Map(
    z
      .object({
        content: z.array(z.object({ top_logprobs: z.array(z.object({ token: z.string(), logprob: z.number() })) })),
      })
      .parse(answer.choices[0]?.logprobs)
      .content[0]?.top_logprobs.map(({ token, logprob }): [string, number] => [token, logprob]),
  );

/** Parameters of the receipt's items, hashes left out. */
const items = (receipt: string) =>
  parseList(receipt).map(([, parameters]) => {
    const { hash: _, ...rest } = Object.fromEntries(parameters);
    return rest;
  });

async function sensed(over: object) {
  const body = {
    ...story("a boat on the sea"),
    return_sae_activations: { sae_id: "demo-l1", features: [SEA], positions: "all" },
  };
  const { answer, receipt, prompt } = await chat({ ...body, ...over });
  const { activations } = z.object({ activations: activationResultSchema }).parse(answer["steerage"]);
  return { prompt, receipt, values: activations.positions.map(({ features }) => features[0]?.value ?? NaN) };
}

describe("modes through the engine", () => {
  it("moves the present activation as set, scale and ablate say, and counts the rows", async () => {
    const plain = await sensed({});
    const active = plain.values.filter((value) => value > 0).length;
    expect(active).toBeGreaterThan(0);
    const set = await sensed(onSea({ mode: "set", strength: 30 }));
    expect(items(set.receipt)).toEqual([
      { sae: "demo-l1", layer: 1, features: 1, modes: "set", rows: set.values.length },
    ]);
    expect(Math.min(...set.values)).toBeGreaterThan(Math.max(5, ...plain.values) / 2);
    const ablated = await sensed(onSea({ mode: "ablate" }));
    expect(Math.max(...ablated.values)).toBeLessThan(Math.max(...plain.values));
    expect(items(ablated.receipt)[0]).toMatchObject({ modes: "ablate" });
    const scaled = await sensed(onSea({ mode: "scale", strength: 3 }));
    expect(Math.max(...scaled.values)).toBeGreaterThan(1.5 * Math.max(...plain.values));
  });

  it("reads units: the share of a recorded maximum is the raw strength it stands for", async () => {
    const features: unknown = JSON.parse(readFileSync(repositoryFile("backend/demo/demo-l1/features.json"), "utf8"));
    const recorded = z.array(z.object({ index: z.int(), max_activation: z.number() })).parse(features);
    const maximum = recorded.find(({ index }) => index === SEA)?.max_activation ?? NaN;
    const share = await sensed(onSea({ strength: 0.5, unit: "max" }));
    const raw = await sensed(onSea({ strength: 0.5 * maximum }));
    expect(share.values).toEqual(raw.values);
    // Decoder rows of the demo have length 1.
    const unit = await sensed(onSea({ strength: 0.5 * maximum, unit: "unit" }));
    unit.values.forEach((value, at) => expect(value).toBeCloseTo(raw.values[at] ?? NaN, 2));
  });

  it("reports a clamp after the conversion to raw", async () => {
    const { receipt } = await sensed(onSea({ strength: 1e9, mode: "set" }));
    expect(items(receipt)[0]).toMatchObject({ clamped: true });
  });

  it("steers where a condition holds, and says on how many rows", async () => {
    const never = await sensed(onSea({ strength: 40, when: { index: SEA, op: ">", value: 1e6 } }));
    const plain = await sensed({});
    expect(never.values).toEqual(plain.values);
    expect(items(never.receipt)[0]).toMatchObject({ rows: 0 });
    const always = await sensed(onSea({ strength: 40 }, { when: { index: SEA, op: ">=", value: 0 } }));
    expect(always.values).toEqual((await sensed(onSea({ strength: 40 }))).values);
    expect(items(always.receipt)[0]).toMatchObject({ rows: always.values.length });
  });

  it("edits two layers in one request and says so by layer", async () => {
    const { receipt } = await chat({
      ...story("two layers"),
      steering: [
        { sae_id: "demo-l2", features: [{ index: 3, strength: 2 }], positions: "completion" },
        { sae_id: "demo-l1", features: [{ index: SEA, mode: "ablate" }], exclude_special_tokens: true },
      ],
    });
    expect(items(receipt)).toMatchObject([
      { sae: "demo-l1", modes: "ablate", "no-special-tokens": true },
      { sae: "demo-l2", positions: "completion" },
    ]);
  });

  it("tells the same in a stream as in a whole answer", async () => {
    const body = {
      ...story("a stream"),
      ...onSea({ strength: 0.7, unit: "max", mode: "set" }, { positions: "completion" }),
    };
    const whole = await chat(body);
    const data = await streamData(await engine.post("/v1/chat/completions", { ...body, stream: true }));
    const receipts = data.flatMap((one) => {
      const chunk = one === "[DONE]" ? {} : z.looseObject({}).parse(JSON.parse(one));
      const read = z.object({ steerage: z.object({ steering: z.string() }) }).safeParse(chunk);
      return read.success ? [read.data.steerage.steering] : [];
    });
    expect(receipts).toEqual([whole.receipt]);
  });
});

describe("positions and the prefix cache", () => {
  it("leaves the rows of a prompt alone when only the completion is steered, and shares its cells", async () => {
    const body = story("shared cells");
    const plain = await chat(body);
    const steered = await chat({ ...body, ...onSea({ strength: 40 }, { positions: "completion" }) });
    expect(steered.cached).toBe(plain.prompt - 1);
    expect(steered.text).not.toBe(plain.text);
    expect(items(steered.receipt)[0]).toMatchObject({ positions: "completion" });
    // The first token comes from the prompt's last row, which was not edited.
    expect(steered.text.slice(0, 1)).toBe(plain.text.slice(0, 1));
  });

  it("shares nothing between prompts under different edits, whatever the positions are called", async () => {
    const body = story("nothing in common");
    const alone = (over: object) => chat({ ...body, ...over }, "nothing in common");
    const first = await alone(onSea({ strength: 40 }, { positions: "prompt" }));
    expect(first.cached).toBe(0);
    expect((await alone({})).cached).toBe(0);
    expect((await alone(onSea({ strength: 40 }))).cached).toBe(first.prompt - 1);
    expect((await alone(onSea({ strength: 40 }, { when: { index: 1, op: ">=", value: 0 } }))).cached).toBe(0);
    expect((await alone(onSea({ strength: 39 }))).cached).toBe(0);
  });

  it("takes up a turn whose history was generated under the same steering", async () => {
    const body = story("a second turn");
    const first = await chat({ ...body, ...onSea({ strength: 30 }) }, "turns");
    const messages = [
      ...body.messages,
      { role: "assistant", content: first.text },
      { role: "user", content: "And then?" },
    ];
    const second = await chat({ ...body, messages, ...onSea({ strength: 30 }) }, "turns");
    expect(second.cached).toBeGreaterThan(first.prompt + 10);
    const unsteered = await chat({ ...body, messages }, "turns");
    expect(unsteered.cached).toBe(0);
  });

  it("answers from cached cells what it answers from computed ones", async () => {
    const kinds = [
      onSea({ strength: 30 }, { positions: { start: 3, end: 9 } }),
      onSea({ strength: 20, mode: "set" }, { exclude_special_tokens: true }),
      onSea({ mode: "scale", strength: 4 }, { positions: "completion" }),
    ];
    for (const kind of kinds) {
      const body = { ...story("twice"), ...kind, max_tokens: 1, logprobs: true, top_logprobs: 5 };
      const [first, second] = [await chat(body), await chat(body)];
      expect(second.cached).toBe(first.prompt - 1);
      // Rows of a short batch and of a long one are rounded apart.
      const [computed, reused] = [topLogprobsOf(first.answer), topLogprobsOf(second.answer)];
      for (const [token, logprob] of computed) expect(reused.get(token) ?? NaN).toBeCloseTo(logprob, 0);
      expect(computed.size).toBe(5);
    }
  });

  it("steers no control token where those are left out", async () => {
    const body = { ...story("control tokens"), max_tokens: 1 };
    const { receipt } = await chat({
      ...body,
      ...onSea({ strength: 9, mode: "set" }, { exclude_special_tokens: true }),
    });
    const all = await chat({ ...body, ...onSea({ strength: 9, mode: "set" }) });
    const rows = (text: string) => Number(items(text)[0]?.["rows"]);
    expect(rows(receipt)).toBeLessThan(rows(all.receipt));
    expect(rows(receipt)).toBeGreaterThan(0);
  });
});

describe("what is refused, by name (C128)", () => {
  it.each([
    [{ index: -1, strength: 1 }, "steering.features[0].index"],
    [{ index: 512, strength: 1 }, "steering.features[0].index"],
    [{ index: 1.5, strength: 1 }, "steering.features[0].index"],
    [{ index: "7", strength: 1 }, "steering.features[0].index"],
    [{ index: 1, strength: null }, "steering.features[0].strength"],
    [{ index: 1, strength: 1, mode: "replace" }, "steering.features[0].mode"],
    [{ index: 1, strength: 1, unit: "norm" }, "steering.features[0].unit"],
    [{ index: 1, strength: 1, when: { index: 512, op: ">", value: 0 } }, "steering.features[0].when.index"],
    [{ index: 1, strength: 1, when: { index: 1, op: "=", value: 0 } }, "steering.features[0].when.op"],
  ])("%j is a fault of %s", async (feature, param) => {
    const steering = { sae_id: "demo-l1", features: [feature] };
    expect(await refusal({ steering })).toMatchObject({ status: 400, param });
  });

  it.each([
    [{ positions: { start: 5_000, end: 5_001 } }, "steering.positions.start"],
    [{ positions: { start: 4, end: 4 } }, "steering.positions.start"],
    [{ layer: 9 }, "steering"],
  ])("%j beside good features is a fault of %s", async (more, param) => {
    expect(await refusal(onSea({ strength: 1 }, more))).toMatchObject({ status: 400, param });
  });

  it("keeps every probability finite under the greatest strengths on 500 features", async () => {
    const features = Array.from({ length: 500 }, (_, index) => ({ index, strength: index % 2 === 0 ? 1e9 : -1e9 }));
    const { answer, receipt } = await chat({
      ...story("too much"),
      steering: { sae_id: "demo-l1", features },
      logprobs: true,
      top_logprobs: 3,
    });
    expect(items(receipt)).toEqual([{ sae: "demo-l1", layer: 1, features: 500, clamped: true }]);
    const values = logprobsOf(answer);
    expect(values).toHaveLength(24);
    expect(values.every((value) => Number.isFinite(value))).toBe(true);
  });

  it("reports the probabilities of the steered run", async () => {
    const body = { ...story("probabilities"), logprobs: true, top_logprobs: 1, max_tokens: 4 };
    const logprobs = async (over: object) => logprobsOf((await chat({ ...body, ...over })).answer);
    expect(await logprobs(onSea({ strength: 40 }))).not.toEqual(await logprobs({}));
    expect(await logprobs(onSea({ strength: 0 }))).toEqual(await logprobs({}));
  });
});

describe("activations along a stream", () => {
  const chunkSchema = z.looseObject({
    choices: z.array(z.unknown()),
    steerage: z
      .object({
        steering: z.string().optional(),
        activations: z.union([activationResultSchema, z.array(activationResultSchema)]).optional(),
      })
      .optional(),
  });
  async function streamed(over: object) {
    const body = { ...story("live rows"), ...over, stream: true };
    const data = await streamData(await engine.post("/v1/chat/completions", body));
    return data.filter((one) => one !== "[DONE]").map((one) => chunkSchema.parse(JSON.parse(one)));
  }

  it("come token by token, each once, and are the rows of the whole answer", async () => {
    const asked = { sae_id: "demo-l1", features: [SEA, 3], positions: "all" };
    // Long enough that even a busy machine does not join all of it into one chunk.
    const long = { ...story("live rows"), max_tokens: 400 };
    const whole = await chat({ ...long, return_sae_activations: asked });
    const expected = z.object({ activations: activationResultSchema }).parse(whole.answer["steerage"]).activations;
    const chunks = await streamed({ ...long, return_sae_activations: { ...asked, stream: true } });
    const told = chunks.flatMap(({ steerage }) => steerage?.activations ?? []);
    // How many steps one chunk joins depends on the machine.
    expect(told.length).toBeGreaterThan(1);
    expect(told.flatMap(({ positions }) => positions)).toEqual(expected.positions);
    expect(chunks[0]?.choices).toHaveLength(1);
    expect(chunks.filter(({ steerage }) => steerage?.steering !== undefined)).toHaveLength(1);
    expect(chunks.every(({ choices, steerage }) => steerage === undefined || choices.length === 0)).toBe(true);
  });

  it("of several SAEs come as lists, and only those that were asked to stream", async () => {
    const chunks = await streamed({
      return_sae_activations: [
        { sae_id: "demo-l1", positions: "completion", top_k: 2, stream: true },
        { sae_id: "demo-l2", positions: "completion", top_k: 2 },
      ],
    });
    const lists = chunks.flatMap(({ steerage }) => (steerage?.activations === undefined ? [] : [steerage.activations]));
    expect(lists.every((list) => Array.isArray(list))).toBe(true);
    const closing = lists.at(-1) ?? [];
    const early = lists.slice(0, -1).flat();
    expect(new Set(early.map(({ sae_id: id }) => id))).toEqual(new Set(["demo-l1"]));
    expect([closing].flat().map(({ sae_id: id, positions }) => [id, positions.length])).toEqual([
      ["demo-l1", expect.any(Number)],
      ["demo-l2", 23],
    ]);
  });

  it("are refused where nothing streams", async () => {
    const asked = { sae_id: "demo-l1", stream: true };
    expect(await refusal({ return_sae_activations: asked })).toMatchObject({
      status: 400,
      param: "return_sae_activations.stream",
    });
  });
});

describe("profiles of the host", () => {
  it("answer as the steering they stand for, told as a profile", async () => {
    const body = story("a profile");
    const named = await chat({ ...body, profile: "sea", steering_intensity: 2 }, "named");
    const written = await chat({ ...body, ...onSea({ strength: 40 }) }, "written");
    expect(named.text).toBe(written.text);
    const hash = /hash="([0-9a-f]{64})"/u.exec(written.receipt)?.[1] ?? "none";
    expect(named.receipt).toBe(
      `profile;name="sea";source=request;intensity=2;sae="demo-l1";layer=1;features=1;hash="${hash}"`,
    );
    const off = await chat({ ...body, profile: "sea", steering_intensity: "off" }, "off");
    expect([off.receipt, off.text]).toEqual(["none", (await chat(body, "plain")).text]);
  });

  it("are told to the host when their SAEs are attached, and refused by name when they cannot be applied", async () => {
    const ready = engine.events.find((event) => event.type === "ready");
    expect(ready).toMatchObject({ profiles: [{ name: "sea", saes: ["demo-l1"] }] });
    expect(await refusal({ profile: "elsewhere" })).toMatchObject({ status: 400, param: "profile" });
    expect(await refusal({ profile: "nobody" })).toMatchObject({ status: 400, param: "profile" });
  });
});
