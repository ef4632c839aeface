import { describe, expect, it } from "vitest";
import { readOperatorPath } from "../../../../backend/host/operator-paths.ts";

describe("an operator's path", () => {
  it.each([
    ["/tokenize", { kind: "text", model: null, methods: ["POST"], enginePath: "/tokenize" }],
    ["/apply-template", { kind: "text", model: null, enginePath: "/apply-template" }],
    ["/host/v1/models/m/detokenize", { kind: "text", model: "m", enginePath: "/detokenize" }],
    ["/host/v1/models/a%2Fb/saes", { kind: "saes", model: "a/b", methods: ["POST"], enginePath: "/engine/v1/saes" }],
    [
      "/host/v1/models/m/saes/x%2Fy",
      { kind: "saes", model: "m", methods: ["DELETE"], enginePath: "/engine/v1/saes/x%2Fy", id: "x/y" },
    ],
    [
      "/host/v1/models/m/watch-lists",
      { kind: "watch_lists", methods: ["GET"], enginePath: "/engine/v1/watch-lists", id: null },
    ],
    [
      "/host/v1/models/m/watch-lists/sea",
      { kind: "watch_lists", methods: ["GET", "PUT", "DELETE"], enginePath: "/engine/v1/watch-lists/sea", id: "sea" },
    ],
    [
      "/host/v1/models/m/watch-lists/sea/events",
      { kind: "watch_lists", methods: ["GET"], enginePath: "/engine/v1/watch-lists/sea/events", id: "sea" },
    ],
    ["/host/v1/models/%/saes", { kind: "saes", model: "" }],
  ])("%s names a place", (path, place) => {
    expect(readOperatorPath(path)).toMatchObject(place);
  });

  it.each([
    "/tokenize/",
    "/host/v1/tokenize",
    "/host/v1/models/m",
    "/host/v1/models//saes",
    "/host/v1/models/m/saes/x/y",
    "/host/v1/models/m/watch-lists/sea/other",
    "/host/v1/models/m/health",
    "/host/v1/models/m/v1/chat/completions",
    "/host/v1/models/m/engine/v1/events",
  ])("%s is none", (path) => {
    expect(readOperatorPath(path)).toBeNull();
  });
});
