import { describe, expect, it } from "vitest";
import { filesBelow, textOf } from "../../support/source-tree.ts";

const ROOMS = ["shared", "edge", "backend", "test", "scripts"];
const sources = ROOMS.flatMap((folder) => filesBelow(folder, [".ts", ".mjs", ".cc", ".h"]));

describe("the house", () => {
  it("has no file over 500 lines", () => {
    expect(sources.filter((file) => textOf(file).split("\n").length > 501)).toEqual([]);
  });

  it("has no barrels", () => {
    expect(
      sources.filter((file) => file !== "test/unit/house/tidiness.test.ts" && /^export \* from/m.test(textOf(file))),
    ).toEqual([]);
    expect(sources.filter((file) => file.endsWith("/index.ts"))).toEqual([]);
  });

  it("has no rooms and files whose name says nothing", () => {
    const empty = /(^|\/)(utils?|common|helpers?|misc|managers?|services?)(\/|\.[a-z]+$)/;
    expect(sources.filter((file) => empty.test(file))).toEqual([]);
  });

  it("has kebab-case file names", () => {
    expect(
      sources.filter((file) => file.endsWith(".ts") && !/(^|\/)[a-z0-9]+([-.][a-z0-9]+)*\.ts$/.test(file)),
    ).toEqual([]);
  });

  it("pins every version exactly", () => {
    const manifest: unknown = JSON.parse(textOf("package.json"));
    const versions = JSON.stringify(manifest).match(/"(?:dependencies|devDependencies)":\{[^}]*\}/g) ?? [];
    expect(versions).toHaveLength(2);
    expect(versions.join(" ")).not.toMatch(/":"[~^>*]/);
    expect(textOf("package-lock.json")).not.toMatch(/"resolved": "http/);
  });

  it("writes no function where a property of a request gets it", () => {
    // V8 makes such a function in the old generation (it may be a method): dead, it keeps the request until a full
    // collection. A constant first, and the property from that.
    const written = /^\s*[\w.#?]+\.#?\w+ (?:\?\?)?= (?:async )?(?:\([^)]*\)(?:: [^=]+)? =>|\w+ =>|function\b)/m;
    const onTheWay = sources.filter((file) => /^(shared|edge)\/(?!node\/commands\/).*\.ts$/.test(file));
    expect(onTheWay.filter((file) => written.test(textOf(file)))).toEqual([]);
  });
});
