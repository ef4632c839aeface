import { expect, it } from "vitest";
import { endedRequestSchema, hourCounterSchema } from "../../../../shared/protocol/report.ts";
import { endedRequest, START_MS } from "../../../support/usage-rows.ts";

const counter = {
  epoch: 7,
  hour: START_MS,
  requests: 1,
  computed_prompt: 1,
  cached_prompt: 1,
  computed_completion: 1,
};

it.each(["computed_prompt", "cached_prompt", "computed_completion"] as const)(
  "a count that no machine reaches is refused, so that no cost leaves the ledger's integers: %s",
  (member) => {
    const entry = endedRequest("r1");
    expect(endedRequestSchema.safeParse({ ...entry, [member]: 1_000_000_000 }).success).toBe(true);
    expect(endedRequestSchema.safeParse({ ...entry, [member]: 1_000_000_001 }).success).toBe(false);
    expect(hourCounterSchema.safeParse({ ...counter, [member]: 1_000_000_000_000 }).success).toBe(true);
    expect(hourCounterSchema.safeParse({ ...counter, [member]: 1_000_000_000_001 }).success).toBe(false);
  },
);
