import { describe, expect, it } from "vitest";
import { filesBelow, importsOf } from "../../support/source-tree.ts";

interface Arrow {
  readonly from: string;
  readonly to: string;
}

/** Rooms of the edge from the inside out: a room may import its own level and any lower one. */
const EDGE_LEVELS: readonly (readonly string[])[] = [
  ["ports"],
  [
    "accounts",
    "limits",
    "admission",
    "fleet",
    "routing",
    "usage",
    "membership",
    "monitoring",
    "store",
    "config",
    "config.ts",
  ],
  ["dispatch"],
  ["http", "deps.ts"],
  ["app.ts"],
  ["web"],
  ["node", "workers"],
];
/** Rooms of the backend that must not know each other. */
const BACKEND_FORBIDDEN: readonly Arrow[] = [
  { from: "backend/host/", to: "backend/engine/" },
  { from: "backend/host/", to: "backend/native/" },
  { from: "backend/host/", to: "backend/sae/" },
  { from: "backend/supervisor/", to: "backend/engine/" },
  { from: "backend/supervisor/", to: "backend/host/" },
  { from: "backend/launchers/", to: "backend/host/" },
  { from: "backend/engine/", to: "backend/host/" },
  { from: "backend/engine/", to: "backend/supervisor/" },
  { from: "backend/sae/", to: "backend/engine/" },
  { from: "backend/sae/", to: "backend/host/" },
  { from: "backend/native/", to: "backend/engine/" },
  { from: "backend/ports/", to: "backend/host/" },
];
const LEAVES = ["edge/node/", "edge/workers/"];

const levelOf = (file: string): number => {
  const room = file.split("/")[1] ?? "";
  return EDGE_LEVELS.findIndex((rooms) => rooms.includes(room));
};

const top = (file: string) => file.split("/")[0];

function faultOf({ from, to }: Arrow): string | null {
  const say = (why: string) => `${from} imports ${to}: ${why}`;
  const inside = /^(shared|edge|backend|test|scripts)\//.test(to);
  if (top(from) === "shared" && !to.startsWith("shared/") && to !== "zod")
    return say("shared imports zod and nothing else");
  if (inside && top(to) !== top(from) && top(to) !== "shared") return say("arrows run edge → shared ← backend");
  if (top(from) === "edge") {
    const inLeaf = LEAVES.some((leaf) => from.startsWith(leaf));
    if (!inLeaf && (to.startsWith("node:") || to === "undici")) return say("the edge core runs on every runtime");
    if (/^hono(\/|$)/.test(to) && !inLeaf && !from.startsWith("edge/http/") && from !== "edge/app.ts") {
      return say("only edge/http knows Hono");
    }
    if (to.startsWith("edge/") && levelOf(from) < levelOf(to)) return say("an inner room imports an outer one");
    if (from.startsWith("edge/node/") && to.startsWith("edge/workers/")) return say("leaves do not know each other");
    if (from.startsWith("edge/workers/") && to.startsWith("edge/node/")) return say("leaves do not know each other");
  }
  for (const arrow of BACKEND_FORBIDDEN) {
    if (from.startsWith(arrow.from) && to.startsWith(arrow.to)) return say("these rooms do not know each other");
  }
  if (
    to.startsWith("node-llama-cpp") &&
    !from.startsWith("backend/native/") &&
    !from.startsWith("backend/engine/llama/")
  ) {
    return say("only backend/native and backend/engine/llama know llama.cpp");
  }
  return null;
}

describe("the arrows between rooms", () => {
  it("point the right way in every file", () => {
    const files = ["shared", "edge", "backend"].flatMap((folder) => filesBelow(folder, [".ts"]));
    expect(files.length).toBeGreaterThan(30);
    const faults = files
      .flatMap((from) => importsOf(from).map((to) => faultOf({ from, to })))
      .filter((fault) => fault !== null);
    expect(faults).toEqual([]);
  });

  it("leave no room of the edge without a level", () => {
    const rooms = new Set(filesBelow("edge", [".ts"]).map((file) => file.split("/")[1] ?? ""));
    expect([...rooms].filter((room) => levelOf(`edge/${room}`) === -1)).toEqual([]);
  });

  it.each([
    ["shared/x.ts", "hono"],
    ["shared/x.ts", "edge/app.ts"],
    ["edge/dispatch/x.ts", "backend/host/y.ts"],
    ["edge/dispatch/x.ts", "node:fs"],
    ["edge/dispatch/x.ts", "hono"],
    ["edge/ports/x.ts", "edge/dispatch/y.ts"],
    ["edge/dispatch/x.ts", "edge/http/y.ts"],
    ["edge/workers/x.ts", "edge/node/y.ts"],
    ["backend/host/x.ts", "backend/engine/y.ts"],
    ["backend/host/x.ts", "node-llama-cpp"],
  ])("would be caught pointing from %s to %s", (from, to) => {
    expect(faultOf({ from, to })).not.toBeNull();
  });
});
