import { afterAll } from "vitest";
import { layout } from "../support/native-harness.ts";

// The same suites once more with a stream of cells for every sequence, where llama.cpp regroups the rows of a step.
layout.streams = true;
afterAll(() => {
  layout.streams = false;
});

await import("./batching.test.ts");
await import("./canary.test.ts");
await import("./control-vector.test.ts");
await import("./draft-model.test.ts");
await import("./golden.test.ts");
await import("./positions.test.ts");
await import("./speculation.test.ts");
await import("./speculation-models.test.ts");
await import("./steering.test.ts");
await import("./steering-modes.test.ts");
