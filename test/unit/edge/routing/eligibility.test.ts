import { describe, expect, it } from "vitest";
import { requestEnvelopeSchema } from "../../../../shared/openai/request-envelope.ts";
import { featuresOf } from "../../../../edge/routing/capabilities.ts";
import { DEFAULT_ROUTING_SETTINGS, type Candidate } from "../../../../edge/routing/candidate.ts";
import { eligible } from "../../../../edge/routing/eligibility.ts";
import { carries } from "../../../../edge/routing/labels.ts";

const candidate = (key: string, more: Partial<Candidate> = {}): Candidate => ({
  key,
  kind: "host",
  usable: true,
  slots: 8,
  ownInFlight: 0,
  othersInFlight: 0,
  waiting: 0,
  kvUse: null,
  ownWork: 0,
  workPerSecond: 200,
  warmth: 1,
  reportAgeMs: 0,
  capabilities: ["chat"],
  saes: [],
  lacks: [],
  contextLength: null,
  pace: null,
  weight: 1,
  priority: 0,
  busyUntilMs: 0,
  ejectedUntilMs: 0,
  probing: false,
  ...more,
});
const chat = { capability: "chat", saeIds: [], needsSomeSae: false, excludedReplicas: [], features: [] };
const keysFor = (
  candidates: readonly Candidate[],
  more: { features?: readonly string[]; contextLength?: number | null },
) => {
  const found = eligible(candidates, { ...chat, contextLength: null, ...more }, DEFAULT_ROUTING_SETTINGS, 0);
  return found.kind === "eligible" ? found.candidates.map(({ key }) => key) : found.kind;
};

describe("a request that needs a long context", () => {
  const all = [
    candidate("short", { contextLength: 512 }),
    candidate("long", { contextLength: 4_096 }),
    candidate("unknown"),
  ];

  it("goes to replicas that have it, and to those of which nobody says", () => {
    expect(keysFor(all, { contextLength: 512 })).toEqual(["short", "long", "unknown"]);
    expect(keysFor(all, { contextLength: 513 })).toEqual(["long", "unknown"]);
  });

  it("goes to the longest where none has it: its engine knows exactly", () => {
    expect(keysFor(all.slice(0, 2), { contextLength: 5_000 })).toEqual(["long"]);
  });
});

describe("a request with tools or images", () => {
  const of = (body: object) => featuresOf(requestEnvelopeSchema.parse({ model: "m", ...body }));

  it("needs replicas that take them", () => {
    const image = { role: "user", content: [{ type: "image_url", image_url: { url: "data:" } }] };
    expect(of({ messages: [{ role: "user", content: "hi" }], tools: [] })).toEqual([]);
    expect(of({ messages: [{ role: "user", content: [{ type: "text", text: "hi" }] }] })).toEqual([]);
    expect(of({ messages: [image], tools: [{ type: "function" }] })).toEqual(["tools", "vision"]);
    expect(of({ messages: [null, 3, "x"] })).toEqual([]);
  });

  it("goes to hosts that report them, and to endpoints unless the operator says no", () => {
    const all = [
      candidate("tools", { capabilities: ["chat", "tools"] }),
      candidate("plain"),
      candidate("not-any-more", { capabilities: ["chat", "tools"], lacks: ["tools"] }),
      candidate("everything", { capabilities: [] }),
      candidate("server", { kind: "endpoint" }),
      candidate("poor-server", { kind: "endpoint", lacks: ["tools"] }),
    ];
    expect(keysFor(all, { features: ["tools"] })).toEqual(["tools", "everything", "server"]);
    expect(keysFor([candidate("plain")], { features: ["vision"] })).toBe("no_capability");
  });
});

describe("a selector", () => {
  it("wants every label with its value", () => {
    expect(carries({ zone: "eu", class: "big" }, { zone: "eu" })).toBe(true);
    expect(carries({ zone: "us" }, { zone: "eu" })).toBe(false);
    expect(carries({}, { zone: "eu" })).toBe(false);
    expect(carries({}, {})).toBe(true);
    expect(carries({}, { toString: "" })).toBe(false);
  });
});
