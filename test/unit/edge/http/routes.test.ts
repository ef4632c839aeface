import { describe, expect, it } from "vitest";
import { createApp } from "../../../../edge/app.ts";
import { errorBodyOf } from "../../../support/error-body.ts";
import { fakeEdge, GOOD_KEY, MODEL, PRINCIPAL } from "../../../support/edge-deps.ts";

const CHAT = "/v1/chat/completions";
const question = { model: MODEL.id, messages: [{ role: "user", content: "Hello" }] };

function setUp() {
  const edge = fakeEdge();
  const app = createApp(edge.deps);
  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    app.request(path, {
      method: "POST",
      body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
      headers: { "content-type": "application/json", authorization: `Bearer ${GOOD_KEY}`, ...headers },
    });
  const get = (path: string, headers: Record<string, string> = { authorization: `Bearer ${GOOD_KEY}` }) =>
    app.request(path, { headers });
  return { ...edge, app, post, get };
}

describe("authentication", () => {
  it("stands before every route under /v1, whatever its body, by the router's own list", async () => {
    const { app, dispatched } = setUp();
    const routes = app.routes.filter(({ method, path }) => method !== "ALL" && path.startsWith("/v1"));
    const others = "key models models/:id{.+} saes saes/:place{.+} completions embeddings".split(" ");
    const known = [CHAT, ...others.map((name) => `/v1/${name}`)];
    expect(new Set(routes.map(({ path }) => path))).toEqual(new Set(known));
    for (const { method, path } of routes) {
      const response = await app.request(path.replace(/:\w+\{\.\+\}/, "x"), {
        method,
        ...(method === "POST" ? { body: "x".repeat(5_000) } : {}),
      });
      expect(response.status, `${method} ${path}`).toBe(401);
      expect(response.headers.get("www-authenticate")).toBe("Bearer");
      expect((await errorBodyOf(response)).code).toBe("missing_api_key");
    }
    expect(dispatched).toEqual([]);
  });

  it.each([
    ["Bearer", "missing_api_key"],
    ["Bearer ", "missing_api_key"],
    ["Basic eDp5", "missing_api_key"],
    [GOOD_KEY, "missing_api_key"],
    [`Bearer ${GOOD_KEY}x`, "invalid_api_key"],
    ["Bearer sk-st-nobody-nothing", "invalid_api_key"],
    [`Bearer ${"k".repeat(10_240)}`, "invalid_api_key"],
    [`Bearer ${GOOD_KEY}, Bearer sk-st-other`, "invalid_api_key"],
  ])("refuses Authorization: %.40s", async (authorization, code) => {
    const { get } = setUp();
    const response = await get("/v1/models", { authorization });
    expect(response.status).toBe(401);
    const error = await errorBodyOf(response);
    expect(error.code).toBe(code);
    expect(error.type).toBe("authentication_error");
    expect(error.message).not.toContain("sk-st-nobody");
  });

  it.each([
    `bearer ${GOOD_KEY}`,
    `BEARER  ${GOOD_KEY}`,
    `Bearer ${GOOD_KEY} `,
    `Bearer ${GOOD_KEY}, Bearer ${GOOD_KEY}`,
  ])("accepts %.12s", async (authorization) => {
    const { get } = setUp();
    expect((await get("/v1/models", { authorization })).status).toBe(200);
  });

  it("never takes a key from the query or from x-api-key", async () => {
    const { get } = setUp();
    const response = await get(`/v1/models?api_key=${GOOD_KEY}&key=${GOOD_KEY}`, { "x-api-key": GOOD_KEY });
    expect(response.status).toBe(401);
  });
});

describe("keys switched off", () => {
  it("make everybody one principal, with or without a header", async () => {
    const { deps, dispatched } = fakeEdge();
    const app = createApp({ ...deps, everybody: { ...PRINCIPAL, keyId: "everybody" } });
    for (const authorization of ["", "Bearer whatever"]) {
      const headers = { "content-type": "application/json", ...(authorization === "" ? {} : { authorization }) };
      const response = await app.request(CHAT, { method: "POST", body: JSON.stringify(question), headers });
      expect(response.status).toBe(200);
    }
    expect(dispatched.map(({ principal }) => principal.keyId)).toEqual(["everybody", "everybody"]);
  });
});

describe("the body", () => {
  it.each(["application/json; charset=UTF-8", "application/vnd.x+json", "APPLICATION/JSON"])(
    "is accepted as %s (C055)",
    async (type) => {
      const { post } = setUp();
      expect((await post(CHAT, question, { "content-type": type })).status).toBe(200);
    },
  );

  it.each(["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])(
    "is refused as '%s' with 415 (C055)",
    async (type) => {
      const { post } = setUp();
      const response = await post(CHAT, question, { "content-type": type });
      expect(response.status).toBe(415);
      expect((await errorBodyOf(response)).code).toBe("unsupported_media_type");
    },
  );

  it.each([
    ["{", "invalid_json"],
    ["", "invalid_json"],
    ['{"model":"m",x}', "invalid_json"],
    [Uint8Array.of(0x7b, 0x22, 0xc4, 0xe3, 0x22, 0x7d), "invalid_json"],
    [Uint8Array.of(0x7b, 0x22, 0xc0, 0x80, 0x22, 0x7d), "invalid_json"],
    ["null", "invalid_body"],
    ["42", "invalid_body"],
    ['"x"', "invalid_body"],
    ["[]", "invalid_body"],
    ["true", "invalid_body"],
    ["{}", "missing_field"],
  ])("%s is 400 %s", async (body, code) => {
    const { post, dispatched } = setUp();
    const response = await post(CHAT, body);
    expect(response.status).toBe(400);
    expect((await errorBodyOf(response)).code).toBe(code);
    expect(dispatched).toEqual([]);
  });

  it("over the limit is 413 when its length is announced", async () => {
    const { post } = setUp();
    const body = JSON.stringify({ ...question, user: "x".repeat(2_000) });
    const response = await post(CHAT, body, { "content-length": String(body.length) });
    expect(response.status).toBe(413);
    expect((await errorBodyOf(response)).code).toBe("body_too_large");
  });

  it("without a length is read no further than the limit", async () => {
    const { app } = setUp();
    let pulled = 0;
    const long = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled += 500;
        if (pulled > 100_000) controller.close();
        else controller.enqueue(new Uint8Array(500).fill(0x20));
      },
    });
    const response = await app.request(
      new Request("http://edge/v1/chat/completions", {
        method: "POST",
        body: long,
        duplex: "half",
        headers: { "content-type": "application/json", authorization: `Bearer ${GOOD_KEY}` },
      }),
    );
    expect(response.status).toBe(413);
    expect(pulled).toBeLessThan(4_000);
  });

  it("reaches dispatch as the very text that was sent", async () => {
    const { post, dispatched } = setUp();
    const text = `{ "model":"tell",  "messages":[], "seed":1e0, "x":"\\u00e9" }`;
    await post(CHAT, text);
    expect(dispatched[0]?.bodyText).toBe(text);
    expect(dispatched[0]?.model.id).toBe(MODEL.id);
  });
});

describe("the envelope", () => {
  it.each([
    ["model as a number", { model: 5 }, 400, "model"],
    ["an empty model", { model: "" }, 400, "model"],
    ["an unknown model", { model: "nope" }, 404, "model"],
    ["a limit of zero", { ...question, max_tokens: 0 }, 400, "max_tokens"],
    ["a limit as text", { ...question, max_tokens: "5" }, 400, "max_tokens"],
    ["a fraction", { ...question, max_tokens: 1.5 }, 400, "max_tokens"],
    ["two limits that differ", { ...question, max_tokens: 5, max_completion_tokens: 50 }, 400, "max_tokens"],
    ["n above its bound", { ...question, n: 129 }, 400, "n"],
    [
      "a feature named twice",
      { ...question, steering: { features: [1, 1].map((index) => ({ index, strength: 1 })) } },
      400,
      "steering.features[1].index",
    ],
    [
      "a feature out of range",
      { ...question, steering: { sae_id: "sae-1", features: [{ index: 512, strength: 1 }] } },
      400,
      "steering.features[0].index",
    ],
    [
      "an SAE that nobody holds",
      { ...question, steering: { sae_id: "sae-9", features: [{ index: 1, strength: 1 }] } },
      400,
      "steering.sae_id",
    ],
    [
      "a sensed feature out of range",
      { ...question, return_sae_activations: { features: [3, 512] } },
      400,
      "return_sae_activations.features[1]",
    ],
    ["sensing with two choices", { ...question, n: 2, return_sae_activations: {} }, 400, "n"],
  ])("%s is refused by name", async (_what, body, status, param) => {
    const { post, dispatched } = setUp();
    const response = await post(CHAT, body);
    expect(response.status).toBe(status);
    expect((await errorBodyOf(response)).param).toBe(param);
    expect(dispatched).toEqual([]);
  });

  it("refuses a strength that is not finite, as JSON can smuggle one in", async () => {
    const { post } = setUp();
    const response = await post(
      CHAT,
      `{"model":"tell","messages":[],"steering":{"sae_id":"sae-1","features":[{"index":1,"strength":1e999}]}}`,
    );
    expect(response.status).toBe(400);
    expect((await errorBodyOf(response)).param).toBe("steering.features[0].strength");
  });

  it("refuses steering and sensing of embeddings", async () => {
    const { post } = setUp();
    const input = { model: "tell", input: "x" };
    for (const more of [{ steering: { features: [{ index: 1, strength: 1 }] } }, { return_sae_activations: {} }]) {
      expect((await post("/v1/embeddings", { ...input, ...more })).status).toBe(400);
    }
    expect((await post("/v1/embeddings", { ...input, steering: { features: [] } })).status).toBe(200);
  });

  it("asks nothing of SAEs while no replica is ready, since they may come back", async () => {
    const { post, state } = setUp();
    state.models = [{ ...MODEL, readyReplicas: 0, saes: [] }];
    const steering = { sae_id: "sae-1", features: [{ index: 1, strength: 1 }] };
    expect((await post(CHAT, { ...question, steering })).status).toBe(200);
  });
});

describe("request ids", () => {
  it("are the edge's own; the caller's is kept as a label, bounded and cleaned", async () => {
    const { post, dispatched } = setUp();
    const response = await post(CHAT, question, { "x-request-id": `mineé ${"y".repeat(300)}` });
    const id = response.headers.get("x-request-id");
    expect(id).toMatch(/^req_[0-9A-Za-z]{22}$/);
    expect(dispatched[0]?.requestId).toBe(id);
    expect(dispatched[0]?.clientRequestId).toBe(`mine${"y".repeat(124)}`);
  });

  it("stand on refusals too", async () => {
    const { get } = setUp();
    expect((await get("/nope")).headers.get("x-request-id")).toMatch(/^req_/);
  });
});

describe("browsers", () => {
  it("get their preflight without a key, and can read refusals", async () => {
    const { app } = setUp();
    const origin = "https://page.example";
    const preflight = await app.request(CHAT, {
      method: "OPTIONS",
      headers: {
        origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
    expect(preflight.headers.get("access-control-allow-methods")).toContain("POST");
    expect(preflight.headers.get("access-control-allow-headers")).toContain("x-stainless-os");
    expect(Number(preflight.headers.get("access-control-max-age"))).toBeGreaterThan(0);
    const refusal = await app.request(CHAT, { method: "POST", headers: { origin } });
    expect(refusal.status).toBe(401);
    expect(refusal.headers.get("access-control-allow-origin")).toBe("*");
    for (const name of ["retry-after", "x-request-id", "x-ratelimit-remaining-tokens"])
      expect(refusal.headers.get("access-control-expose-headers")).toContain(name);
  });

  it("can read answers that dispatch writes", async () => {
    const { post } = setUp();
    const response = await post(CHAT, question, { origin: "https://page.example" });
    expect(response.headers.get("access-control-allow-origin")).toBe("*");
  });
});

describe("paths and methods", () => {
  it("nothing at a path is 404 in the envelope, a wrong method 405 with Allow", async () => {
    const { app, get } = setUp();
    const nothing = await app.request("/v1/nope", { method: "POST" });
    expect(nothing.status).toBe(404);
    expect((await errorBodyOf(nothing)).code).toBe("route_not_found");
    const wrong = await get(CHAT);
    expect(wrong.status).toBe(405);
    expect(wrong.headers.get("allow")).toBe("POST, OPTIONS");
    expect((await errorBodyOf(wrong)).code).toBe("method_not_allowed");
    expect((await app.request("/v1/models", { method: "DELETE" })).headers.get("allow")).toBe("GET, HEAD, OPTIONS");
  });

  it("HEAD answers as GET without a body", async () => {
    const { app } = setUp();
    const health = await app.request("/health", { method: "HEAD" });
    expect(health.status).toBe(200);
    expect(await health.text()).toBe("");
    const models = await app.request("/v1/models", { method: "HEAD" });
    expect(models.status).toBe(401);
  });

  it.each(["/v1/models/org%2Fstoryteller:q8", "/v1/models/org/storyteller:q8", "/v1/models/tell"])(
    "%s finds the model",
    async (path) => {
      const { get } = setUp();
      const response = await get(path);
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({
        id: MODEL.id,
        object: "model",
        created: 1_700_000_000,
        owned_by: "steerage",
        context_length: 512,
        max_output: 256,
        description: MODEL.description,
        aliases: ["tell"],
        capabilities: ["chat", "completions"],
        pricing: { prompt_per_1k: 3, completion_per_1k: 9, cached_per_1k: 1 },
        saes: [{ id: "sae-1", layer: 1, hook_point: "blocks.1.hook_resid_post", features: 512, loaded: true }],
      });
    },
  );

  it("a model that is not there is 404 model_not_found", async () => {
    const { get } = setUp();
    const response = await get("/v1/models/ORG%2FName:Q8");
    expect(response.status).toBe(404);
    expect((await errorBodyOf(response)).code).toBe("model_not_found");
  });
});

describe("failures of our own", () => {
  it("say nothing of their cause to the caller and everything to the log", async () => {
    const { deps, log } = fakeEdge();
    const broken = { ...deps, fleet: { ...deps.fleet, models: () => Promise.reject(new Error("secret path /x")) } };
    const response = await createApp(broken).request("/v1/models", {
      headers: { authorization: `Bearer ${GOOD_KEY}` },
    });
    expect(response.status).toBe(500);
    const text = await response.text();
    expect(text).not.toContain("secret");
    expect(text).toContain("internal_error");
    expect(log.join("\n")).toContain("secret path /x");
    expect(log.join("\n")).not.toContain(GOOD_KEY);
  });
});

describe("draining and readiness", () => {
  it("refuses new work with 503 and Retry-After while the lists still answer", async () => {
    const { post, get, state } = setUp();
    state.draining = true;
    const refused = await post(CHAT, question);
    expect(refused.status).toBe(503);
    expect(refused.headers.get("retry-after")).toBe("5");
    expect((await errorBodyOf(refused)).code).toBe("draining");
    expect((await get("/v1/models")).status).toBe(200);
    expect((await get("/ready")).status).toBe(503);
    expect((await get("/health")).status).toBe(200);
  });

  it("is degraded, not gone, while the store is away", async () => {
    const { get, state } = setUp();
    expect(await (await get("/ready", {})).json()).toMatchObject({ status: "ready" });
    state.store = "away";
    const response = await get("/ready", {});
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ status: "degraded", store: "away" });
  });
});

describe("the front page", () => {
  it("says what is served and how to ask, with names escaped", async () => {
    const { get } = setUp();
    const page = await (await get("/", { accept: "text/html,application/json;q=0.9" })).text();
    expect(page).toContain(MODEL.id);
    expect(page).toContain("sae-1");
    expect(page).toContain("Tells &lt;short&gt; stories");
    expect(page).toContain("/v1/chat/completions");
  });

  it("is JSON for those who ask for it", async () => {
    const { get } = setUp();
    const response = await get("/", { accept: "application/json" });
    expect(await response.json()).toMatchObject({ base_url: "http://localhost/v1", models: [{ id: MODEL.id }] });
  });
});
