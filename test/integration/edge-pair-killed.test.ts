import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { EdgePair, type EdgeName } from "../support/edge-pair.ts";

const LONG = {
  model: "sim",
  messages: [{ role: "user", content: "tell me all of it" }],
  stream: true,
  max_tokens: 5_000,
};
const SHORT = { ...LONG, stream: false, max_tokens: 4 };

const rowSchema = z.looseObject({
  request_id: z.string(),
  outcome: z.string(),
  exactness: z.string(),
  completion_tokens: z.int(),
  cost_nano_usd: z.union([z.string(), z.number()]),
});
type Row = z.infer<typeof rowSchema>;

describe.each(["file", "server"] as const)("two edges on one database (%s), one killed", (database) => {
  let pair: EdgePair | null = null;
  afterEach(async () => {
    await pair?.stop();
    pair = null;
  });

  const exported = async (edges: EdgePair, name: EdgeName): Promise<Row[]> =>
    (await edges.cli(name, "usage", "export"))
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => rowSchema.parse(JSON.parse(line)));

  it("the other settles what ran there, once, and the ledger's sums hold before and after its return", async () => {
    const edges = await EdgePair.start({
      database,
      edge: {
        control: { lease_ttl: "5s" },
        // A token of the answer costs a tenth of a cent.
        auth: { default_price: { prompt_per_1k: 0, completion_per_1k: 1_000_000 } },
      },
      sim: { output_tokens: 5_000, tokens_per_second: 50 },
    });
    pair = edges;
    expect((await edges.request("b", "/chat/completions", SHORT)).status).toBe(200);
    const { key } = await edges.newKey("--tpm", "100000000", "--budget-usd", "5.2");
    const asCaller = { headers: { authorization: `Bearer ${key}` } };
    const stream = await edges.request("a", "/chat/completions", LONG, asCaller);
    const requestId = stream.headers.get("x-request-id") ?? "";
    await stream.body?.getReader().read();
    await edges.until("the running request is noted", async () => {
      const rows = await edges.rows("select request_id from open_requests where edge = 'a'");
      return rows.some((row) => row["request_id"] === requestId);
    });

    // The running request holds five dollars of the budget, and the other edge knows.
    const dear = { ...LONG, max_tokens: 4_500 };
    const refused = await edges.request("b", "/chat/completions", dear, asCaller);
    expect(refused.status).toBe(429);
    expect(await refused.text()).toContain("insufficient_quota");

    await edges.end("a", "SIGKILL");
    await edges.until("the other edge settles it", async () =>
      (await exported(edges, "b")).some((row) => row.request_id === requestId),
    );
    const settled = (await exported(edges, "b")).find((row) => row.request_id === requestId);
    expect(settled).toMatchObject({ outcome: "cancelled", exactness: "exact" });
    expect(settled?.completion_tokens).toBeGreaterThan(0);
    await expect(edges.cli("b", "usage", "check")).resolves.toContain("The ledger agrees");
    const [left] = await edges.rows("select count(*) as n from open_requests where request_id = ?", [requestId]);
    expect(Number(left?.["n"])).toBe(0);
    // What it did not use is free again, but for what the dead edge held in advance.
    const served = await edges.request("b", "/chat/completions", dear, asCaller);
    expect(served.status).toBe(200);
    await served.body?.cancel();

    edges.startEdge("a");
    await edges.untilServing("a");
    expect((await edges.request("a", "/chat/completions", SHORT)).status).toBe(200);
    await edges.until(
      "the edge that came back has written its own",
      async () => (await exported(edges, "b")).filter(({ outcome }) => outcome === "completed").length === 2,
    );
    expect((await exported(edges, "a")).filter((row) => row.request_id === requestId)).toEqual([settled]);
    await expect(edges.cli("a", "usage", "check")).resolves.toContain("The ledger agrees");
    await expect(edges.cli("b", "usage", "check")).resolves.toContain("The ledger agrees");
  }, 120_000);
});
