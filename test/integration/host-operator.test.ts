import { readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, until } from "../support/host-process.ts";
import { REPOSITORY } from "../support/source-tree.ts";

const MODEL = "demo-storyteller-1m";
const DEMO = path.join(REPOSITORY, "backend/demo");
const nativeModel = (name: string) => ({ name, source: path.join(DEMO, `${MODEL}.q8_0.gguf`), slots: 2, threads: 1 });

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
      models: [nativeModel(MODEL), { name: "sim", engine: "sim", slots: 1, max_pending: 1 }],
    });
    operator = readFileSync(path.join(host.folder, "data/operator-token"), "utf8").trim();
    await until("the models are ready", () => readyCount() === 2);
  });
  afterAll(async () => {
    await host.stop();
    await edge.stop();
  });

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
});
