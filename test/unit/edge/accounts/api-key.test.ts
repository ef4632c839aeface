import { describe, expect, it } from "vitest";
import { isHostToken, newApiKey, newHostToken, parseApiKey } from "../../../../edge/accounts/api-key.ts";
import { equalInConstantTime } from "../../../../edge/accounts/constant-time.ts";
import { sha256 } from "../../../../edge/accounts/sha256.ts";

const bytes = (length: number): Uint8Array => Uint8Array.from({ length }, (_, at) => (at * 37) % 256);

describe("API keys", () => {
  it("are made in the form in which they are read", () => {
    const key = newApiKey(bytes);
    expect(key.text).toMatch(/^sk-st-[0-9A-Za-z]{12}-[0-9A-Za-z]{43}$/);
    expect(parseApiKey(key.text)).toEqual({ publicId: key.publicId, secret: key.secret });
  });

  it.each([
    ["empty", ""],
    ["a letter short", "sk-st-aaaaaaaaaaaa-" + "b".repeat(42)],
    ["a letter long", "sk-st-aaaaaaaaaaaa-" + "b".repeat(44)],
    ["the right length and another alphabet", "sk-st-aaaaaaaaaaaa-" + "ä".repeat(43)],
    ["another prefix", "sk-xx-aaaaaaaaaaaa-" + "b".repeat(43)],
    ["a line's end after it", "sk-st-aaaaaaaaaaaa-" + "b".repeat(42) + "\n"],
    ["ten kilobytes", "s".repeat(10_240)],
  ])("are refused when they are %s", (_, text) => {
    expect(parseApiKey(text)).toBeNull();
  });

  it("are not enrolment tokens", () => {
    const token = newHostToken(bytes);
    expect(isHostToken(token)).toBe(true);
    expect(parseApiKey(token)).toBeNull();
    expect(isHostToken(newApiKey(bytes).text)).toBe(false);
  });
});

describe("comparison in constant time", () => {
  it.each([
    ["", "", true],
    ["abc", "abc", true],
    ["abc", "abd", false],
    ["abc", "ab", false],
    ["ab", "abc", false],
    ["", "a", false],
    ["é".repeat(3), "é".repeat(3), true],
    ["a\u0000", "a", false],
  ])("takes %j and %j as equal: %s", (one, other, equal) => {
    expect(equalInConstantTime(one, other)).toBe(equal);
  });
});

it("SHA-256 is that of the UTF-8 bytes, in hex", async () => {
  expect(await sha256("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});
