import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { EdgePair, type EdgeName } from "../support/edge-pair.ts";

const ASK = { model: "sim", messages: [{ role: "user", content: "x" }], max_tokens: 10 };
const EDGES: readonly EdgeName[] = ["a", "b"];
const errorSchema = z.object({ error: z.object({ code: z.string() }) });

/** Dollars a token: prompts are free, so that 10 tokens at most cost a cent. */
const PRICE = { prompt_per_1k: 0, completion_per_1k: 1_000_000 };

describe.each(["file", "server"] as const)("limits of two edges on one database (%s)", (database) => {
  let pair: EdgePair;
  beforeAll(async () => {
    pair = await EdgePair.start({
      database,
      edge: { control: { lease_ttl: "5s" }, auth: { default_price: PRICE } },
      sim: { output_tokens: 10 },
    });
  }, 60_000);
  afterAll(() => pair.stop());

  const askAs = (key: string, name: EdgeName): Promise<Response> =>
    pair.request(name, "/chat/completions", ASK, { headers: { authorization: `Bearer ${key}` } });

  /** `count` requests at once, half of them at each edge; how many were answered, and the codes of the others. */
  async function burst(key: string, count: number): Promise<{ answered: number; codes: Set<string> }> {
    const codes = new Set<string>();
    let answered = 0;
    await Promise.all(
      Array.from({ length: count }, async (_, place) => {
        const response = await askAs(key, EDGES[place % 2] ?? "a");
        const text = await response.text();
        if (response.ok) answered += 1;
        else codes.add(`${response.status} ${errorSchema.parse(JSON.parse(text)).error.code}`);
      }),
    );
    return { answered, codes };
  }

  it("let in what the rate allows once, at whichever edge, and tell the rest when to come back", async () => {
    const { key } = await pair.newKey("--rpm", "20");
    const { answered, codes } = await burst(key, 60);
    // What fills up while the burst lasts, and the stated bound: an eighth and one for each edge.
    expect(answered).toBeGreaterThanOrEqual(15);
    expect(answered).toBeLessThanOrEqual(20 + 4 + 3 + 2);
    expect([...codes]).toEqual(["429 rate_limit_exceeded"]);
    const refused = await askAs(key, "b");
    expect(refused.headers.get("x-ratelimit-limit-requests")).toBe("20");
    await refused.text();
  }, 60_000);

  it("spend a budget once, and to its end, whichever edge is asked", async () => {
    // Ten tokens cost 10,000,000 nano-dollars: a cent. The budget is ten of them.
    const { key, id } = await pair.newKey("--rpm", "100000", "--tpm", "100000000", "--budget-usd", "0.1");
    const first = await burst(key, 24);
    expect(first.answered).toBeLessThanOrEqual(10);
    let answered = first.answered;
    await pair.until("the budget is spent to its end", async () => {
      for (const name of EDGES) {
        const response = await askAs(key, name);
        await response.text();
        if (response.ok) answered += 1;
      }
      return answered >= 10;
    });
    expect(answered).toBe(10);
    for (const name of EDGES) {
      const response = await askAs(key, name);
      expect(response.status).toBe(429);
      expect(errorSchema.parse(await response.json()).error.code).toBe("insufficient_quota");
    }
    await pair.until("all rows are there", async () => {
      const rows = await pair.rows("select count(*) as n from usage where key_id = ? and cost_nano_usd > 0", [id]);
      return Number(rows[0]?.["n"]) === 10;
    });
    const [sum] = await pair.rows("select sum(cost_nano_usd) as nano_usd from usage where key_id = ?", [id]);
    expect(Number(sum?.["nano_usd"])).toBe(100_000_000);
  }, 90_000);
});
