import { readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { SseParser } from "../../shared/sse/parser.ts";
import { repositoryFile } from "../support/native-harness.ts";
import { DEMO_MODEL, Stack, until } from "../support/stack.ts";

const DEMO = repositoryFile("backend/demo");
const SEA = 501;
const question = { model: DEMO_MODEL, messages: [{ role: "user", content: "Tell me a story." }], temperature: 0 };

describe("steering through edge and host", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await Stack.start({
      host: {
        models: [
          {
            name: DEMO_MODEL,
            source: path.join(DEMO, `${DEMO_MODEL}.q8_0.gguf`),
            saes: ["demo-l1", "demo-l2"].map((id) => ({ id, source: path.join(DEMO, id) })),
            profiles: [
              { name: "sea", steering: { sae_id: "demo-l1", features: [{ index: SEA, strength: 1, unit: "max" }] } },
              { name: "lost", steering: { sae_id: "demo-l9", features: [{ index: 1, strength: 1 }] } },
            ],
          },
        ],
      },
    });
  });
  afterAll(() => stack.stop());

  const chat = (over: object) => stack.request("/chat/completions", { ...question, max_tokens: 12, ...over });
  async function dataOf(response: Response): Promise<string[]> {
    const parser = new SseParser({ maxEventLength: 1_000_000 });
    return [...parser.push(await response.text())].map(({ data }) => data);
  }

  it("takes profiles by the names that hosts report, and by no others", async () => {
    const list = await (await stack.request("/models")).json();
    expect(list).toMatchObject({ data: [{ id: DEMO_MODEL, profiles: ["sea"] }] });
    const answer = await chat({ profile: "sea", steering_intensity: "max" });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-steerage-steering")).toMatch(
      /^profile;name="sea";source=request;intensity=1.5;sae="demo-l1";layer=1;features=1;hash="[0-9a-f]{64}"$/u,
    );
    for (const profile of ["lost", "nobody"]) {
      const refused = await chat({ profile });
      expect(refused.status).toBe(400);
      expect(await refused.json()).toMatchObject({ error: { param: "profile" } });
    }
  });

  it("carries modes, conditions and positions of two layers there, and the receipt back", async () => {
    const steering = [
      { sae_id: "demo-l2", features: [{ index: 3, mode: "ablate" }], positions: "prompt" },
      {
        sae_id: "demo-l1",
        features: [{ index: SEA, mode: "set", strength: 1, unit: "max", when: { index: 3, op: ">=", value: 0 } }],
        exclude_special_tokens: true,
      },
    ];
    const whole = await chat({ steering });
    const receipt = whole.headers.get("x-steerage-steering") ?? "";
    expect(receipt).toMatch(
      /sae="demo-l1".*;modes="set";no-special-tokens;rows=\d+, inline;sae="demo-l2".*;modes="ablate"/u,
    );
    const streamed = await dataOf(await chat({ steering, stream: true }));
    const rows = /rows=\d+/gu;
    const told = streamed.find((data) => data.includes('"steering"')) ?? "{}";
    const { steerage } = z.object({ steerage: z.object({ steering: z.string() }) }).parse(JSON.parse(told));
    // Rows that come from the cache are not counted again.
    expect(steerage.steering.replace(rows, "")).toBe(receipt.replace(rows, ""));
  });

  it("attaches, swaps and detaches an SAE for the operator alone, and callers see it at once", async () => {
    const operator = readFileSync(path.join(stack.folder, "host/operator-token"), "utf8").trim();
    const manage = (method: string, route: string, token: string, body?: object) =>
      fetch(`${stack.hostUrl}/host/v1/models/${DEMO_MODEL}/saes${route}`, {
        method,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    const steering = { sae_id: "extra", features: [{ index: 3, mode: "set", strength: 9 }] };
    const layers = async () =>
      /sae="extra";layer=(\d)/u.exec((await chat({ steering })).headers.get("x-steerage-steering") ?? "")?.[1];

    for (const token of [stack.key, "", `${operator}x`]) {
      expect((await manage("POST", "", token, { id: "extra", path: path.join(DEMO, "demo-l1") })).status).toBe(401);
    }
    expect((await chat({ steering })).status).toBe(400);
    expect((await manage("POST", "", operator, { id: "extra", path: path.join(DEMO, "demo-l1") })).status).toBe(200);
    await until("the edge knows the SAE", async () => (await chat({ steering })).status === 200);
    expect(await layers()).toBe("1");
    expect((await manage("POST", "", operator, { id: "extra", path: path.join(DEMO, "demo-l2") })).status).toBe(200);
    expect(await layers()).toBe("2");
    expect((await manage("DELETE", "/extra", operator)).status).toBe(200);
    await until("the edge forgets the SAE", async () => (await chat({ steering })).status === 400);
    expect((await manage("GET", "", operator)).status).toBe(405);
  });

  it("streams activations of two SAEs between the deltas", async () => {
    const asked = ["demo-l1", "demo-l2"].map((id) => ({
      sae_id: id,
      features: [SEA],
      positions: "completion",
      stream: true,
    }));
    const data = await dataOf(await chat({ return_sae_activations: asked, stream: true, ignore_eos: true }));
    expect(data.at(-1)).toBe("[DONE]");
    const rowSchema = z.object({ sae_id: z.string(), positions: z.array(z.object({ position: z.int() })) });
    const chunkSchema = z.object({ steerage: z.object({ activations: z.array(rowSchema) }) });
    const positions = data.slice(0, -1).flatMap((one) => {
      const read = chunkSchema.safeParse(JSON.parse(one));
      return read.success ? read.data.steerage.activations : [];
    });
    for (const { sae_id: id } of asked) {
      const told = positions.filter((rows) => rows.sae_id === id).flatMap((rows) => rows.positions);
      expect(told.map(({ position }) => position - (told[0]?.position ?? 0))).toEqual([...told.keys()]);
      expect(told).toHaveLength(11);
    }
  });
});
