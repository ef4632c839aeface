import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import { directStore, type ClosableStore } from "../../edge/node/database.ts";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { silentLogger } from "../support/dispatch-fakes.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const keySchema = z.object({
  scopes: z.array(
    z.object({ scope: z.string(), budgets: z.array(z.object({ period: z.string(), spent_usd: z.string() })) }),
  ),
});

let endpoint: ScriptedEndpoint;
let edge: EdgeOnNode;
let store: ClosableStore;
beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
    auth: { cache_ttl: "1ms", flush_interval: "20ms", default_price: { completion_per_1k: 1 } },
  });
  const { databaseUrl } = edge.loaded;
  store = await directStore({ databaseUrl, clock: nodeClock, logger: silentLogger });
});
afterAll(async () => {
  await store.close();
  await edge.remove();
  await endpoint.stop();
});

const ask = (): Promise<Response> =>
  edge.post("/chat/completions", { model: "m", max_tokens: 5, messages: [{ role: "user", content: "Count." }] });
const spentOf = async (scope: string): Promise<unknown> => {
  const { scopes } = keySchema.parse(
    await (await fetch(`${edge.urls.baseUrl}/key`, { headers: { authorization: `Bearer ${edge.key}` } })).json(),
  );
  return scopes.find((one) => one.scope === scope)?.budgets;
};

it("budgets of a day and a month hold for project and account, survive a restart, and help at once when raised", async () => {
  await store.updateProject("test", { limits: { budgetDayNanoUsd: "10" } });
  await store.updateAccount("default", { limits: { budgetMonthNanoUsd: "15" } });
  const statuses = [(await ask()).status, (await ask()).status];
  const refused = await ask();
  expect([...statuses, refused.status]).toEqual([200, 200, 429]);
  const { code, message } = await errorBodyOf(refused);
  expect([code, message]).toEqual([
    "insufficient_quota",
    expect.stringMatching(
      /^The budget of 0\.00000001 US dollars per day of project test does not cover this request; it begins anew at .*T00:00:00Z\.$/,
    ),
  ]);
  const retryAfter = Number(refused.headers.get("retry-after"));
  expect(retryAfter).toBeGreaterThanOrEqual(1);
  expect(retryAfter).toBeLessThanOrEqual(86_400);
  expect(refused.headers.get("x-ratelimit-limit-requests")).toBe("600");

  await until("both rows are stored", async () =>
    (await store.usageHours({ fromMs: null, toMs: null })).some(({ costNanoUsd }) => costNanoUsd === "10"),
  );
  await edge.restart();
  expect((await ask()).status).toBe(429);
  expect(await spentOf("project")).toMatchObject([{ period: "day", spent_usd: "0.00000001" }]);
  await store.updateProject("test", { limits: { budgetDayNanoUsd: "100" } });
  expect((await ask()).status).toBe(200);
  const byAccount = await ask();
  expect([byAccount.status, (await errorBodyOf(byAccount)).message]).toEqual([
    429,
    expect.stringContaining("US dollars per month of account default"),
  ]);
  await store.updateAccount("default", { limits: { budgetMonthNanoUsd: null } });
  expect((await ask()).status).toBe(200);
});
