import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chatCompletionSchema } from "../../shared/openai/chat.ts";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, until } from "../support/host-process.ts";
import { REPOSITORY } from "../support/source-tree.ts";

const DEMO = path.join(REPOSITORY, "backend/demo");
const source = path.join(DEMO, "demo-storyteller-1m.q8_0.gguf");
const saes = [{ id: "demo-l1", source: path.join(DEMO, "demo-l1") }];

/** Three models of one file: one looks up its guesses, one lets itself be guessed by the same file, one does neither. */
describe("a host whose model guesses its next tokens", () => {
  let edge: FakeEdge;
  let host: HostProcess;
  beforeAll(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    host = await HostProcess.start(edge, {
      allow_grammar: true,
      speculative_method: "prompt_lookup",
      threads: 1,
      models: [
        { name: "guessing", source, saes },
        { name: "drafting", source, saes, speculative_method: "draft_model", speculative_model: source },
        { name: "plain", source, saes, speculative_method: "off" },
      ],
    });
    const ready = () => (edge.lastReport?.replicas ?? []).filter(({ state }) => state === "ready").length === 3;
    await until("the models are ready", ready, 60_000);
  });
  afterAll(async () => {
    await host.stop();
    await edge.stop();
  });

  const ask = async (model: string, extra: Record<string, unknown>) => {
    const requestId = edge.newRequestId();
    const messages = [{ role: "user", content: "Tell me a story of a ball, a ball and a ball." }];
    const body = JSON.stringify({ model, messages, max_tokens: 80, seed: 7, ...extra });
    const response = await host.request(await edge.sign({ body, requestId, replica: model }), body);
    const { choices, usage, ...rest } = chatCompletionSchema.loose().parse(await response.json());
    await until(`${requestId} is reported`, () => edge.ended.some(({ request_id }) => request_id === requestId));
    const entry = edge.ended.find(({ request_id }) => request_id === requestId);
    return { choices, usage, steerage: rest["steerage"], receipt: response.headers.get("x-steerage-steering"), entry };
  };
  const replica = (model: string) => edge.lastReport?.replicas.find(({ id }) => id === model);

  const grammar = 'root ::= ("the red ball and the blue ball, ")+';
  const steering = { sae_id: "demo-l1", features: [{ index: 501, strength: 20, mode: "set" }] };
  const return_sae_activations = { sae_id: "demo-l1", features: [501, 117], positions: "completion" };
  it.each([
    { name: "greedy", extra: { temperature: 0, grammar } },
    { name: "drawn", extra: { temperature: 0.8, grammar } },
    { name: "drawn, steered and sensed", extra: { temperature: 0.8, grammar, steering, return_sae_activations } },
    { name: "with a stop string", extra: { temperature: 0.8, grammar, stop: ["blue ball, the red ball and the b"] } },
    { name: "several choices", extra: { temperature: 0.8, grammar, n: 3 } },
    { name: "free text", extra: { temperature: 0.8, frequency_penalty: 0.4 } },
  ])("answers and bills as one that does not: $name", async ({ extra }) => {
    const expected = await ask("plain", extra);
    for (const model of ["guessing", "drafting"]) {
      const guessed = await ask(model, extra);
      expect({ ...guessed, entry: null }).toEqual({ ...expected, entry: null });
      const { computed_completion = -1, computed_prompt = 0, cached_prompt = 0 } = guessed.entry ?? {};
      expect(computed_completion).toBe(guessed.usage.completion_tokens);
      expect(computed_prompt + cached_prompt).toBe(guessed.usage.prompt_tokens);
      expect(guessed.entry?.exactness).toBe("exact");
    }
  });

  it("tells what it guessed apart from what it bills, and its counters are the sum of its entries", async () => {
    for (const model of ["guessing", "drafting"]) {
      await until("guesses are reported", () => (replica(model)?.speculation?.accepted ?? 0) > 0);
      const { drafted = 0, accepted = 0, draft_model = 0 } = replica(model)?.speculation ?? {};
      expect(drafted).toBeGreaterThanOrEqual(accepted);
      expect(draft_model > 0).toBe(model === "drafting");
    }
    expect(replica("plain")?.speculation).toBeUndefined();
    const total = (of: readonly { computed_completion: number }[] | undefined) =>
      (of ?? []).reduce((sum, { computed_completion }) => sum + computed_completion, 0);
    await until("counters are told", () => total(edge.lastReport?.counters) === total(edge.ended));
    expect(total(edge.ended)).toBeGreaterThan(0);
  });
});
