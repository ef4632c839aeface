import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { newApiKey } from "../../edge/accounts/api-key.ts";
import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import type { NewKey } from "../../edge/ports/key-store.ts";
import { INFERENCE_ROUTES } from "../../shared/openai/request-envelope.ts";
import { modelEntrySchema, modelListSchema } from "../../shared/openai/models.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, chunkText, endOfStream, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };
const ENVELOPE = /"error":\{"message":"[^"]+","type":"[a-z_]+","param":null,"code":"[a-z_]+"\}/;
/** A body that every route takes. */
const anything = { ...question, prompt: "Count.", input: "Count." };

let endpoint: ScriptedEndpoint;
let edge: EdgeOnNode;
beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [{ id: "other", url: endpoint.url, models: ["m", "ORG/Name:Q8"], slots: 64 }],
    auth: { default_rpm: 0, default_tpm: 0, flush_interval: "20ms" },
  });
});
afterAll(async () => {
  await edge.idle();
  await edge.remove();
  await endpoint.stop();
});
beforeEach(() => {
  endpoint.script = answerOfFive;
  endpoint.seen.length = 0;
});

const get = (path: string, headers: Record<string, string> = {}, method = "GET"): Promise<Response> =>
  fetch(edge.origin + path, { method, headers });
const bearer = (key = edge.key): Record<string, string> => ({ authorization: `Bearer ${key}` });
const strangersKey = (): string => newApiKey(randomBytes).text;

describe("who may come in (C075)", () => {
  it("is open where nothing is told, and closed with the envelope everywhere else", async () => {
    for (const path of ["/", "/health", "/ready"]) expect([path, (await get(path)).status]).toEqual([path, 200]);
    const closed: readonly (readonly [string, readonly string[]])[] = [
      ["GET", ["/v1/models", "/v1/models/m", "/v1/saes", "/requests/req_1"]],
      ["POST", INFERENCE_ROUTES],
    ];
    for (const [method, path] of closed.flatMap(([verb, paths]) => paths.map((one) => [verb, one] as const))) {
      const answer = await get(path, {}, method);
      expect([path, answer.status, answer.headers.get("www-authenticate")]).toEqual([path, 401, "Bearer"]);
      expect(await errorBodyOf(answer)).toMatchObject({ type: "authentication_error", code: "missing_api_key" });
    }
    // Not here at all: the page of numbers has a listener of its own.
    expect((await get("/metrics", bearer())).status).toBe(404);
  });

  const HEADERS: readonly [string, (key: string) => string, number][] = [
    ["the scheme in capitals", (key) => `Authorization: BEARER ${key}`, 200],
    ["space behind the key", (key) => `Authorization: Bearer ${key}   `, 200],
    ["the same key twice", (key) => `Authorization: Bearer ${key}\r\nAuthorization: Bearer ${key}`, 200],
    ["no key at all", () => "X-Nothing: 1", 401],
    ["a scheme alone", () => "Authorization: Bearer", 401],
    ["a scheme and a space", () => "Authorization: Bearer ", 401],
    ["another scheme", (key) => `Authorization: Basic ${key}`, 401],
    ["the key without a scheme", (key) => `Authorization: ${key}`, 401],
    ["the key in another header", (key) => `X-Api-Key: ${key}`, 401],
    ["two keys", (key) => `Authorization: Bearer ${key}\r\nAuthorization: Bearer ${strangersKey()}`, 401],
    ["a key of one character (C081)", () => "Authorization: Bearer x", 401],
    ["a key of the right form (C081)", () => `Authorization: Bearer ${strangersKey()}`, 401],
    ["a key with another secret (C081)", (key) => `Authorization: Bearer ${key.slice(0, -3)}AAA`, 401],
    ["a key in Cyrillic (C081)", () => `Authorization: Bearer ключ`, 401],
    ["a key of ten thousand characters (C081)", () => `Authorization: Bearer ${"k".repeat(10_240)}`, 401],
    ["a header beyond all bounds (C081)", () => `Authorization: Bearer ${"k".repeat(40_000)}`, 431],
  ];
  it.each(HEADERS)("%s is judged by the key alone", async (_what, header, status) => {
    const answer = await edge.raw(
      `GET /v1/models HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n${header(edge.key)}\r\n\r\n`,
    );
    const body = status === 200 ? /"object":"list"/ : ENVELOPE;
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toMatch(body);
  });

  it("is never told whether a key exists", async () => {
    const revoked = await edge.newKey();
    await edge.revoke(revoked);
    const bodies = new Set<string>();
    for (const key of [revoked, strangersKey(), `${edge.key.slice(0, -3)}AAA`, "sk-st-x"])
      bodies.add(await (await get("/v1/models", bearer(key))).text());
    expect(bodies.size).toBe(1);
  });
});

describe("a page of another origin (C076)", () => {
  const origin = "https://page.example";

  it("gets its preflight without a key and can read refusals; operators' listeners know no origins", async () => {
    const asked = "authorization,content-type,x-stainless-os";
    const preflight = await fetch(`${edge.urls.baseUrl}/chat/completions`, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": asked },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
    expect(preflight.headers.get("access-control-allow-methods")).toContain("POST");
    expect(preflight.headers.get("access-control-allow-headers")).toBe(asked);
    expect(Number(preflight.headers.get("access-control-max-age"))).toBeGreaterThan(0);
    const refused = await get("/v1/chat/completions", { origin }, "POST");
    expect([refused.status, refused.headers.get("access-control-allow-origin")]).toEqual([401, "*"]);
    const answered = await edge.post("/chat/completions", question, { headers: { origin } });
    expect([answered.status, answered.headers.get("access-control-allow-origin")]).toEqual([200, "*"]);
    for (const name of ["retry-after", "x-should-retry", "x-request-id", "x-ratelimit-remaining-tokens"])
      expect(answered.headers.get("access-control-expose-headers")).toContain(name);
    const admin = await fetch(`${edge.urls.adminUrl}/health`, { headers: { origin } });
    expect([admin.status, admin.headers.get("access-control-allow-origin")]).toEqual([200, null]);
  });
});

describe("a key that is revoked while requests of it run (C083)", () => {
  it("stays refused after they ended, which they may, time after time", async () => {
    const ends: (() => void)[] = [];
    endpoint.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(chunkText({ content: "word " }));
      ends.push(() => response.end(endOfStream()));
    };
    const keys = await Promise.all(Array.from({ length: 10 }, () => edge.newKey()));
    const running = await Promise.all(
      keys.map((key) => edge.post("/chat/completions", { ...question, stream: true }, { headers: bearer(key) })),
    );
    for (const key of keys) await edge.revoke(key);
    const refused = async (): Promise<boolean> => {
      const answers = await Promise.all(keys.map((key) => get("/v1/models", bearer(key))));
      return answers.every(({ status }) => status === 401);
    };
    await until("all are refused", refused);
    for (const end of ends) end();
    for (const one of running) expect((await one.text()).endsWith("data: [DONE]\n\n")).toBe(true);
    for (const one of running)
      expect(await edge.rowOf(one)).toMatchObject({ outcome: "completed", completionTokens: 5 });
    expect(await refused()).toBe(true);
  });
});

describe("what stands against a key", () => {
  const AGAINST: readonly [string, Partial<NewKey>, string][] = [
    ["no budget", { limits: { ...NO_SCOPE_LIMITS, budgetNanoUsd: "0" } }, "insufficient_quota"],
    ["no tokens", { limits: { ...NO_SCOPE_LIMITS, tokensPerMinute: 1 } }, "rate_limit_exceeded"],
  ];
  const CALLS = INFERENCE_ROUTES.flatMap((route) => AGAINST.map((against) => [route, ...against] as const));

  it.each(CALLS)("holds on %s: %s (C095)", async (route, _what, more, code) => {
    const headers = bearer(await edge.newKey(more));
    const answer = await edge.post(route.slice(3), { ...anything, max_tokens: 5 }, { headers });
    expect([answer.status, (await errorBodyOf(answer)).code]).toEqual([429, code]);
    expect(endpoint.seen).toEqual([]);
  });

  it.each(INFERENCE_ROUTES)(
    "holds on %s: requests a minute, and the highest band of its project (C095)",
    async (route) => {
      const project = `bulk-${route.split("/").at(-1)}`;
      const key = await edge.newKey({ project, band: "bulk", limits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 1 } });
      const headers = { ...bearer(key), "x-steerage-band": "interactive" };
      const first = await edge.post(route.slice(3), anything, { headers });
      expect(first.status).toBe(200);
      expect(await edge.rowOf(first)).toMatchObject({ band: "bulk", project });
      expect((await edge.post(route.slice(3), anything, { headers })).status).toBe(429);
    },
  );
});

describe("unknown models, paths and methods (C120)", () => {
  it.each(INFERENCE_ROUTES)("of %s are told apart by status and code, and no machine hears of them", async (route) => {
    const { model: _m, ...without } = anything;
    const told = async (body: object): Promise<unknown[]> => {
      const answer = await edge.post(route.slice(3), body);
      const { code, param } = await errorBodyOf(answer);
      return [answer.status, code, param];
    };
    expect(await told({ ...anything, model: "nope" })).toEqual([404, "model_not_found", "model"]);
    expect(await told({ ...anything, model: "" })).toEqual([400, "invalid_value", "model"]);
    expect(await told({ ...anything, model: 5 })).toEqual([400, "invalid_value", "model"]);
    expect(await told(without)).toEqual([400, "missing_field", "model"]);
    const wrong = await get(route, bearer());
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST, OPTIONS"]);
    expect((await errorBodyOf(wrong)).code).toBe("method_not_allowed");
    expect(endpoint.seen).toEqual([]);
  });

  it("are found where they are: slashes, colons, HEAD, OPTIONS and the list", async () => {
    for (const path of ["ORG%2FName:Q8", "ORG/Name%3AQ8"]) {
      const found = await get(`/v1/models/${path}`, bearer());
      expect(modelEntrySchema.parse(await found.json())).toMatchObject({ id: "ORG/Name:Q8", owned_by: "steerage" });
    }
    expect((await edge.post("/chat/completions", { ...question, model: "ORG/Name:Q8" })).status).toBe(200);
    expect(modelListSchema.parse(await (await get("/v1/models", bearer())).json()).data).toHaveLength(2);
    for (const path of ["/health", "/v1/models"]) {
      const head = await get(path, bearer(), "HEAD");
      expect([head.status, await head.text()]).toEqual([200, ""]);
    }
    const nothing = await edge.post("/nope", question);
    expect([nothing.status, (await errorBodyOf(nothing)).code]).toEqual([404, "route_not_found"]);
    const server = await edge.raw("OPTIONS * HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n");
    expect(server).toMatch(/^HTTP\/1\.1 204 [^]*allow: GET, HEAD, POST, OPTIONS/i);
  });
});
