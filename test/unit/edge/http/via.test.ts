import { describe, expect, it } from "vitest";
import { viaWith } from "../../../../edge/http/via.ts";

describe("the edges that a request came through", () => {
  it("are told to the next one in their order, with ours at the end", () => {
    expect(viaWith("me", undefined)).toBe("me");
    expect(viaWith("me", "a,b , c")).toBe("a, b, c, me");
  });

  it("are refused when we are among them, or when there are more than anybody meant (C119)", () => {
    for (const header of ["me", "a, me", "1,2,3,4,5,6,7,8"])
      expect(() => viaWith("me", header)).toThrow(expect.objectContaining({ code: "loop_detected", status: 508 }));
    expect(viaWith("me", "1,2,3,4,5,6,7")).toBe("1, 2, 3, 4, 5, 6, 7, me");
  });

  it("are nothing that a caller could write into the next request", () => {
    expect(viaWith("me", `a b, \u00e9, ", {}, ${"x".repeat(100)}`)).toBe(`${"x".repeat(64)}, me`);
  });
});
