import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { DEMO_MODEL, Stack, until } from "../support/stack.ts";

const REQUESTS = 500;
const CONCURRENCY = 12;

const rowSchema = z.looseObject({
  request_id: z.string(),
  outcome: z.string(),
  exactness: z.string(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
});
type Row = z.infer<typeof rowSchema>;

const outcome = async (response: Response): Promise<string> => {
  await response.text();
  return response.ok ? "ok" : String(response.status);
};

describe("the ledger, over 500 mixed requests", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await Stack.start();
  });
  afterAll(() => stack.stop());

  /** One of six kinds of request by its number; whatever happens to it on the way is not a fault of the test. */
  async function ask(number: number): Promise<string> {
    const base = {
      model: DEMO_MODEL,
      messages: [{ role: "user", content: `Story number ${number}.` }],
      max_tokens: 8 + (number % 24),
      seed: number,
    };
    const steering = { sae_id: "demo-l1", features: [{ index: 501, strength: 30 }] };
    const abort = new AbortController();
    const init = { signal: abort.signal };
    switch (number % 6) {
      case 0:
        return outcome(await stack.request("/chat/completions", base, init));
      case 1:
        return outcome(await stack.request("/chat/completions", { ...base, stream: true, steering }, init));
      case 2:
        return outcome(
          await stack.request("/completions", { ...base, messages: undefined, prompt: "Once", stream: true }, init),
        );
      case 3: {
        const response = await stack.request(
          "/chat/completions",
          { ...base, stream: true, max_tokens: 600, ignore_eos: true },
          init,
        );
        if (!response.ok || response.body === null) return outcome(response);
        await response.body.getReader().read();
        abort.abort();
        return "left";
      }
      case 4: {
        setTimeout(() => abort.abort(), number % 40);
        return outcome(await stack.request("/chat/completions", { ...base, max_tokens: 300, ignore_eos: true }, init));
      }
      default:
        return outcome(await stack.request("/embeddings", { model: DEMO_MODEL, input: [`text ${number}`] }, init));
    }
  }

  it("balances to the last token, with an engine, a host and an edge killed on the way", async () => {
    let next = 0;
    const counts = new Map<string, number>();
    const worker = async (): Promise<void> => {
      while (next < REQUESTS) {
        const number = next++;
        const result = await ask(number).catch(() => "broken");
        counts.set(result, (counts.get(result) ?? 0) + 1);
        // A dead edge refuses at once; without a pause all numbers would be used up while it starts.
        if (result === "broken" && number % 6 !== 4) await new Promise((resolve) => setTimeout(resolve, 100));
      }
    };
    const faults = async (): Promise<void> => {
      await until("a third is done", () => next > REQUESTS / 3);
      for (const pid of stack.enginePids()) process.kill(pid, "SIGKILL");
      await until("half is done", () => next > REQUESTS / 2);
      await stack.end("host", "SIGKILL");
      stack.startHost();
      await until("two thirds are done", () => next > (2 * REQUESTS) / 3);
      await stack.end("edge", "SIGKILL");
      stack.startEdge();
    };
    await Promise.all([faults(), ...Array.from({ length: CONCURRENCY }, worker)]);
    expect(counts.get("ok") ?? 0).toBeGreaterThan(REQUESTS / 4);
    expect(counts.get("left") ?? 0).toBeGreaterThan(REQUESTS / 20);

    await stack.untilReady();
    await until("every slot is free", async () => {
      const lines = await stack.metric(/^steerage_(requests_in_flight|leases_open)(\{|\s)/);
      return lines.length > 0 && lines.every((line) => line.endsWith(" 0"));
    });
    let report = "";
    await until("the check holds", async () => {
      report = await stack
        .cli("usage", "check")
        .catch((error: unknown) => String(Reflect.get(Object(error), "stdout")));
      return !report.includes("differ") && (await exported()).every((row) => row.exactness !== "");
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${report}`);
    });

    const rows = await exported();
    expect(new Set(rows.map((row) => row.request_id)).size).toBe(rows.length);
    expect(rows.length).toBeGreaterThan(REQUESTS / 2);
    const cancelled = rows.filter((row) => row.outcome === "cancelled");
    expect(cancelled.length).toBeGreaterThan(REQUESTS / 20);
    // Cancelled, cut off by any death or complete: the machine's own account reached every row.
    expect(rows.filter((row) => row.exactness !== "exact")).toEqual([]);
    await expect(stack.cli("usage", "check")).resolves.toBeTypeOf("string");
  }, 240_000);

  const exported = async (): Promise<Row[]> =>
    (await stack.cli("usage", "export", "--format", "jsonl"))
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => rowSchema.parse(JSON.parse(line)));
});
