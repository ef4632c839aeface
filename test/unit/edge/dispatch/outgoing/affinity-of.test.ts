import { describe, expect, it } from "vitest";
import { affinityOf } from "../../../../../edge/dispatch/outgoing/affinity-of.ts";
import type { InferenceRequest } from "../../../../../edge/dispatch/inference-request.ts";
import { PrefixIndex } from "../../../../../edge/routing/prefix-index.ts";
import { DEFAULT_ROUTING_SETTINGS } from "../../../../../edge/routing/candidate.ts";
import { inferenceRequest } from "../../../../support/dispatch-fakes.ts";

const story = "Once upon a time there was a router. ".repeat(40);
const asked = (body: Record<string, unknown>, more: Partial<InferenceRequest> = {}): InferenceRequest => ({
  ...inferenceRequest({ messages: [{ role: "user", content: story }], ...body }, { receivedAtMs: 0 }),
  ...more,
});
/** Whether a machine that saw the first prompt is said to know the second. */
function knows(first: InferenceRequest, second: InferenceRequest): boolean {
  const index = new PrefixIndex(DEFAULT_ROUTING_SETTINGS.prefix);
  index.learn(affinityOf(first).prefix, "a", 0);
  return index.match(affinityOf(second).prefix, 0).has("a");
}

describe("what ties a request to machines", () => {
  it("is the beginning of its prompt, whatever stands before it in the text", () => {
    expect(knows(asked({}), asked({}))).toBe(true);
    const longer = [
      { role: "user", content: story },
      { role: "assistant", content: "And then?" },
    ];
    expect(knows(asked({}), asked({ messages: longer, temperature: 0.5 }))).toBe(true);
    const reordered = asked({});
    const moved = { ...reordered, bodyText: reordered.bodyText.replace('{"model":"m"', '{"seed":1,"model":"m"') };
    expect(knows(asked({}), moved)).toBe(true);
  });

  it("is nobody else's: neither another project's nor that of another steering or other tools", () => {
    const principal = { ...asked({}).principal, project: "another" };
    expect(knows(asked({}), asked({}, { principal }))).toBe(false);
    const steering = { sae_id: "x", features: [{ index: 1, strength: 2 }] };
    expect(knows(asked({}), asked({ steering }))).toBe(false);
    expect(knows(asked({}), asked({ tools: [{ type: "function" }] }))).toBe(false);
    expect(knows(asked({ steering }), asked({ steering }))).toBe(true);
  });

  it("is a session under the project's own name, which does not show", () => {
    const sessionOf = (session: string | null, project = "p") =>
      affinityOf(asked({}, { session, principal: { ...asked({}).principal, project } })).session;
    expect(sessionOf(null)).toBeNull();
    expect(sessionOf("s")).toBe(sessionOf("s"));
    expect(sessionOf("s")).not.toBe(sessionOf("t"));
    expect(sessionOf("s")).not.toBe(sessionOf("s", "q"));
  });

  it("is no prompt where nothing is kept of it", () => {
    expect(affinityOf(asked({ input: story }, { route: "/v1/embeddings" })).prefix).toBeNull();
  });
});
