import { expect } from "vitest";
import type { ContextCounters } from "../../backend/native/binding.ts";
import { layout } from "./native-harness.ts";

/** Every micro-batch was compared: one a step in a unified cache, one or more where streams are regrouped. */
export function expectEveryStepChecked(before: ContextCounters, after: ContextCounters): void {
  const checks = after.ownershipChecks - before.ownershipChecks;
  const steps = after.steps - before.steps;
  if (layout.streams) expect(checks).toBeGreaterThanOrEqual(steps);
  else expect(checks).toBe(steps);
}
