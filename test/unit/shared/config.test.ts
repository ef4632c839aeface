import { describe, expect, it } from "vitest";
import { z } from "zod";
import { environmentName, withEnvironment } from "../../../shared/config/environment.ts";
import { ConfigError, readConfig } from "../../../shared/config/read-config.ts";
import { configRows, configTable } from "../../../shared/config/reference.ts";
import { duration, parseDurationMs, parseSizeBytes, size } from "../../../shared/config/units.ts";

const schema = z.strictObject({
  listen: z.string().default("127.0.0.1:1").describe("Where to listen."),
  router: z
    .strictObject({
      retries: z.int().min(0).default(2).describe("Further attempts."),
      wait: duration("10s").describe("How long | to wait."),
      max_body_bytes: size("10MiB").describe("Largest body."),
      deep: z.boolean().default(false),
    })
    .prefault({}),
  endpoints: z
    .array(z.strictObject({ id: z.string().describe("Its name."), tags: z.array(z.string()).default([]) }))
    .default([]),
});

const readFaulty = () => readConfig(schema, { listen: 5, router: { retires: 3, wait: "soon" } }, "test.yaml");

describe("configuration", () => {
  it.each([
    ["200ms", 200],
    ["10s", 10_000],
    ["1.5m", 90_000],
    ["24h", 86_400_000],
    ["0", 0],
    ["10", null],
    ["ten", null],
    ["-1s", null],
  ])("reads the duration %s as %s ms", (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms);
  });
  it.each([
    ["4MiB", 4_194_304],
    ["512B", 512],
    ["77", 77],
    ["4MB", null],
  ])("reads the size %s as %s bytes", (text, bytes) => {
    expect(parseSizeBytes(text)).toBe(bytes);
  });

  it("fills defaults in, converts units and freezes", () => {
    const config = readConfig(schema, { router: { wait: "2s" } }, "test.yaml");
    expect(config.router).toEqual({ retries: 2, wait: 2_000, max_body_bytes: 10_485_760, deep: false });
    expect(Object.isFrozen(config.router)).toBe(true);
  });

  it("names every faulty key at once, unknown ones too", () => {
    expect(readFaulty).toThrow(ConfigError);
    expect(readFaulty).toThrow(/listen[\s\S]*router\.wait[\s\S]*retires/);
  });

  it("lets the environment win, by names made from the keys", () => {
    expect(environmentName("STEERAGE_", "router.max_body_bytes")).toBe("STEERAGE_ROUTER__MAX_BODY_BYTES");
    const document = withEnvironment({ router: { retries: 7, wait: "1s" } }, schema, "STEERAGE_", {
      STEERAGE_ROUTER__RETRIES: "4",
      STEERAGE_ROUTER__DEEP: "true",
      STEERAGE_LISTEN: "0.0.0.0:1",
    });
    expect(readConfig(schema, document, "test.yaml")).toMatchObject({
      listen: "0.0.0.0:1",
      router: { retries: 4, wait: 1_000, deep: true },
    });
  });

  it("has one row a key, entries of lists too", () => {
    expect(configRows(schema).map((row) => row.path)).toEqual([
      "listen",
      "router.retries",
      "router.wait",
      "router.max_body_bytes",
      "router.deep",
      "endpoints",
      "endpoints[].id",
      "endpoints[].tags",
    ]);
    const table = configTable(schema, (path) => environmentName("STEERAGE_", path));
    expect(table).toContain("| `router.wait` | duration | `10s` | `STEERAGE_ROUTER__WAIT` | How long \\| to wait. |");
  });
});
