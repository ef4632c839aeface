import { cpSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { SseParser } from "../../shared/sse/parser.ts";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, until } from "../support/host-process.ts";
import { REPOSITORY } from "../support/source-tree.ts";

const MODEL = "demo-storyteller-1m";
const DEMO = path.join(REPOSITORY, "backend/demo");
const nativeModel = {
  name: MODEL,
  source: path.join(DEMO, `${MODEL}.q8_0.gguf`),
  slots: 2,
  threads: 1,
  saes: [{ id: "demo-l1", source: path.join(DEMO, "demo-l1") }],
};

interface Call {
  readonly body?: unknown;
  readonly token?: string;
}

describe("a host's own port, for its operator", () => {
  let edge: FakeEdge;
  let host: HostProcess;
  let operator = "";

  beforeAll(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    host = await HostProcess.start(edge, {
      models: [nativeModel, { name: "sim", engine: "sim", slots: 1, max_pending: 1 }],
    });
    operator = readFileSync(path.join(host.folder, "data/operator-token"), "utf8").trim();
    await until("the models are ready", () => readyCount() === 2);
  });
  afterAll(async () => {
    await host.stop();
    await edge.stop();
  });

  const killEngines = () => host.enginePids().forEach((pid) => process.kill(pid, "SIGKILL"));
  const readyCount = () => edge.lastReport?.replicas.filter(({ state }) => state === "ready").length;
  const call = (method: string, route: string, { body, token = operator }: Call = {}) =>
    fetch(`${host.url}${route}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });

  describe("the tokenizer and the template", () => {
    const content = "The sea <|im_start|>";
    const tokensSchema = z.object({ tokens: z.array(z.int()) });

    it("are those of the model that the path or the body names", async () => {
      const byPath = await call("POST", `/host/v1/models/${MODEL}/tokenize`, { body: { content } });
      expect(byPath.status).toBe(200);
      const { tokens } = tokensSchema.parse(await byPath.json());
      const byBody = await call("POST", "/tokenize", { body: { model: MODEL, content } });
      expect(tokensSchema.parse(await byBody.json()).tokens).toEqual(tokens);
      const back = await call("POST", "/detokenize", { body: { model: MODEL, tokens } });
      expect(await back.json()).toEqual({ content });
      const messages = [{ role: "user", content: "hi" }];
      const template = await call("POST", "/apply-template", { body: { model: MODEL, messages } });
      expect(await template.json()).toMatchObject({
        prompt: "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
      });
    });

    it("answer nobody without the operator's token", async () => {
      for (const route of ["/tokenize", `/host/v1/models/${MODEL}/tokenize`]) {
        const response = await call("POST", route, { body: { model: MODEL, content }, token: edge.token });
        expect([response.status, await response.json()]).toMatchObject([401, { error: { code: "host_unauthorized" } }]);
      }
    });

    it.each([
      ["/tokenize", { content }, 400, "missing_field", "model"],
      ["/tokenize", { content, model: 7 }, 400, "invalid_value", "model"],
      ["/tokenize", { content, model: "other" }, 404, "model_not_found", null],
      ["/tokenize", "{", 400, "invalid_json", null],
      ["/tokenize", [], 400, "invalid_body", null],
      ["/tokenize", { model: MODEL }, 400, "missing_field", "content"],
      ["/detokenize", { model: MODEL, tokens: [1, 99_999] }, 400, "invalid_value", "tokens[1]"],
      ["/host/v1/models/other/tokenize", { content }, 404, "model_not_found", null],
      [`/host/v1/models/${MODEL}/tokenize`, { content, model: "sim" }, 404, "model_not_found", "model"],
    ])("%s with %j is refused by name", async (route, body, status, ...fault) => {
      const [code, param] = fault;
      const response = await call("POST", route, { body });
      expect([response.status, response.headers.get("x-steerage-error-source")]).toEqual([status, "backend"]);
      expect(await response.json()).toMatchObject({ error: { code, param } });
    });

    it("take a POST only", async () => {
      const response = await call("GET", "/tokenize");
      expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
    });
  });

  describe("SAEs that are attached and detached at run time", () => {
    const SAES = `/host/v1/models/${MODEL}/saes`;
    const served = () =>
      edge.lastReport?.replicas
        .find(({ id }) => id === MODEL)
        ?.saes.map(({ id, layer }) => `${id}@${layer}`)
        .join();
    const extra = () => path.join(host.folder, "extra");

    it("are so after an engine's end and after the host's", async () => {
      cpSync(path.join(DEMO, "demo-l2"), extra(), { recursive: true });
      const attached = await call("POST", SAES, { body: { id: "extra", path: extra() } });
      expect([attached.status, await attached.json()]).toMatchObject([
        200,
        { id: "extra", layer: 2, remembered: true },
      ]);
      const detached = await call("DELETE", `${SAES}/demo-l1`);
      expect(await detached.json()).toEqual({ id: "demo-l1", detached: true, remembered: true });

      killEngines();
      await until("the engines are gone", () => readyCount() === 0);
      await until("the models are ready", () => readyCount() === 2);
      expect(served()).toBe("extra@2");

      await host.end("SIGTERM");
      await host.restart();
      await until("the next host has its models ready", () => readyCount() === 2 && served() === "extra@2");
      expect(host.log.join("\n")).toMatch(/an operator's changes apply.*attached=extra.*detached=demo-l1/);
    });

    it("do not keep their model from serving when their folder is gone", async () => {
      rmSync(extra(), { recursive: true });
      killEngines();
      await until("the model serves without it", () => readyCount() === 2 && served() === "");
      expect(edge.lastReport?.replicas.find(({ id }) => id === MODEL)?.reason).toMatch(/^SAE extra is not served: /);
    });

    it("are as configured again when that is undone", async () => {
      expect((await call("POST", SAES, { body: { id: "demo-l1", path: path.join(DEMO, "demo-l1") } })).status).toBe(
        200,
      );
      const refused = await call("POST", SAES, { body: { id: "demo-l1", path: "/nowhere" } });
      expect(await refused.json()).toMatchObject({ error: { param: "path" } });
      await until("the configured one is served", () => served() === "demo-l1@1");
      const kept: unknown = JSON.parse(readFileSync(path.join(host.folder, "data/operator-changes.json"), "utf8"));
      expect(kept).toMatchObject({ models: { [MODEL]: { detached: [], attached: [{ id: "extra" }] } } });
      // The engine does not have it, but the next one would look for it.
      const forgotten = await call("DELETE", `${SAES}/extra`);
      expect(await forgotten.json()).toEqual({ id: "extra", detached: true, remembered: true });
      expect((await call("DELETE", `${SAES}/extra`)).status).toBe(400);
    });
  });

  describe("watch lists", () => {
    const LISTS = `/host/v1/models/${MODEL}/watch-lists`;
    const ask = async (requestId: string) => {
      const body = JSON.stringify({
        model: MODEL,
        messages: [{ role: "user", content: "Tell me about the sea and the ships." }],
        max_tokens: 12,
        ignore_eos: true,
      });
      const response = await host.request(await edge.sign({ body, requestId, replica: MODEL }), body);
      expect(response.status).toBe(200);
      expect(await response.text()).not.toContain("steerage");
    };
    const rows = async () =>
      z.object({ rows: z.int() }).parse(await (await call("GET", `${LISTS}/sea?minutes=5`)).json()).rows;
    const eventSchema = z.object({ sequence: z.int(), request_id: z.string(), feature: z.int(), value: z.number() });

    it("are set, read and streamed by operators, without a word of the callers' text", async () => {
      const set = await call("PUT", `${LISTS}/sea`, { body: { features: [501], threshold: 1 } });
      expect([set.status, await set.json()]).toMatchObject([
        200,
        { id: "sea", sae_id: "demo-l1", features: [501], context_tokens: 16, state: "watching", remembered: true },
      ]);
      expect(host.log.join("\n")).toMatch(/an operator changed a model .*method=PUT path=\S+\/sea remembered=true/);
      const stream = await call("GET", `${LISTS}/sea/events?stream=true`);
      expect(stream.headers.get("content-type")).toContain("text/event-stream");
      const requestId = edge.newRequestId();
      await ask(requestId);
      expect(await rows()).toBeGreaterThan(20);
      const listed = await call("GET", `${LISTS}/sea/events?limit=1000`);
      const text = await listed.text();
      expect(text).not.toMatch(/context|token/);
      const events = z.object({ data: z.array(eventSchema) }).parse(JSON.parse(text)).data;
      expect(events[0]).toMatchObject({ request_id: requestId, feature: 501 });

      expect((await call("DELETE", `${LISTS}/sea`)).status).toBe(200);
      const streamed = new SseParser({ maxEventLength: 10_000 }).push(await stream.text());
      expect(streamed.map(({ data }) => eventSchema.parse(JSON.parse(data)))).toEqual(events);
      expect((await call("GET", `${LISTS}/sea`)).status).toBe(404);
    });

    it("go on in the next engine", async () => {
      await call("PUT", `${LISTS}/sea`, { body: { features: [501], read_point: "pre_steering" } });
      await call("PUT", `${LISTS}/gone`, { body: { features: [3] } });
      await call("DELETE", `${LISTS}/gone`);
      const stream = await call("GET", `${LISTS}/sea/events?stream=true`);
      killEngines();
      await expect(stream.text()).rejects.toThrow("terminated");
      await until("the engines are gone", () => readyCount() === 0);
      await until("the models are ready", () => readyCount() === 2);
      const { data } = z.object({ data: z.array(z.unknown()) }).parse(await (await call("GET", LISTS)).json());
      expect(data).toMatchObject([{ id: "sea", state: "watching", read_point: "pre_steering" }]);
      expect(await rows()).toBe(0);
      await ask(edge.newRequestId());
      expect(await rows()).toBeGreaterThan(20);
    });

    it("are the operator's alone, and end an event stream whose reader is away", async () => {
      for (const route of ["", "/sea", "/sea/events"]) {
        expect((await call("GET", LISTS + route, { token: edge.token })).status).toBe(401);
      }
      const left = new AbortController();
      const headers = { authorization: `Bearer ${operator}`, accept: "text/event-stream" };
      const follow = () => fetch(`${host.url}${LISTS}/sea/events`, { headers, signal: left.signal });
      const readers = await Promise.all(Array.from({ length: 16 }, follow));
      expect(new Set(readers.map(({ status }) => status))).toEqual(new Set([200]));
      expect((await follow()).status).toBe(503);
      left.abort();
      await until("there is room again", async () => {
        const next = await call("GET", `${LISTS}/sea/events?stream=true`);
        await next.body?.cancel();
        return next.status === 200;
      });
      expect((await call("PUT", `${LISTS}/sea`, { body: { features: [1, 1] } })).status).toBe(400);
    });
  });
});
