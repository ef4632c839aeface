import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { edgeConfigSchema, isLoopbackUrl } from "../../../../edge/config.ts";
import { configRows } from "../../../../shared/config/reference.ts";
import { readConfig } from "../../../../shared/config/read-config.ts";
import { REPOSITORY } from "../../../support/source-tree.ts";

const read = (document: unknown) => readConfig(edgeConfigSchema, document, "edge.yaml");
const endpoint = { id: "a", url: "http://127.0.0.1:9000/v1", models: ["m"] };

describe("the edge's configuration", () => {
  it("needs nothing: an empty file gives the defaults of the design", () => {
    const config = read(null);
    expect(config).toMatchObject({
      listen: "127.0.0.1:8080",
      admin_listen: "127.0.0.1:8081",
      metrics_listen: "",
      agent_listen: "",
      data: ".steerage",
      drain_timeout: 30_000,
      auth: {
        enabled: true,
        cache_ttl: 10_000,
        negative_ttl: 30_000,
        stale_if_error: 86_400_000,
        default_rpm: 600,
        default_tpm: 1_000_000,
        flush_interval: 1_000,
        batch_size: 500,
        buffer_size: 10_000,
      },
      router: {
        retries: 2,
        cooldown: 30_000,
        failure_threshold: 5,
        stale_after: 3_000,
        max_body_bytes: 10 * 2 ** 20,
        inject_usage: true,
        timeouts: {
          dial: 2_000,
          response_header: 30_000,
          first_token: 60_000,
          idle: 30_000,
          generation: 600_000,
          total: 1_800_000,
        },
        admission: {
          default_band: "default",
          enabled: true,
          queue_capacity_per_band: 1_024,
          queue_capacity_bytes: 256 * 2 ** 20,
        },
      },
      control: { unreachable_after: 10_000 },
    });
    expect(config.router.admission.bands).toEqual([
      { name: "interactive", priority: 100, trickle_share: 0.1 },
      { name: "default", priority: 50, trickle_share: 0.1 },
      { name: "bulk", priority: 0, trickle_share: 0.1 },
    ]);
  });

  it("is frozen to its depth", () => {
    expect(Object.isFrozen(read(null).router.timeouts)).toBe(true);
  });

  it.each([
    ["an unknown key by name", { lisen: ":1" }, /lisen/],
    ["an unknown key in a block", { router: { retrys: 1 } }, /router: .*retrys/],
    ["an unknown key of an endpoint", { endpoints: [{ ...endpoint, wieght: 1 }] }, /endpoints\[0\]: .*wieght/],
    ["an address without a port", { listen: "localhost" }, /listen: must be host:port/],
    ["a port that is none", { listen: "localhost:70000" }, /listen/],
    ["a duration without a unit", { drain_timeout: "10" }, /drain_timeout.*'10' is not a duration/],
    [
      "a ceiling above that of a higher band",
      {
        router: {
          admission: {
            bands: [
              { name: "default", priority: 1 },
              { name: "x", saturation_ceiling: 1 },
            ],
          },
        },
      },
      /bands\[1\].saturation_ceiling/,
    ],
    ["a default band that is not there", { router: { admission: { default_band: "x" } } }, /default_band.*'x'/],
    ["an endpoint named twice", { endpoints: [endpoint, endpoint] }, /endpoints\[1\]\.id.*'a' is named twice/],
    [
      "aliases that name each other (C119)",
      { models: ["a", "b"].map((name, at) => ({ name, aliases: [["b", "a"][at] ?? ""] })) },
      /models\[\d\].*'[ab]' is used twice/,
    ],
    [
      "an alias that names itself (C119)",
      { models: [{ name: "a", aliases: ["a"] }] },
      /models\[0\].*'a' is used twice/,
    ],
    ["a model name used twice", { models: [{ name: "m" }, { name: "n", aliases: ["m"] }] }, /models\[1\].*'m'/],
    ["plain HTTP off loopback", { endpoints: [{ ...endpoint, url: "http://10.0.0.1" }] }, /plain HTTP off loopback/],
    ["the same in capitals", { endpoints: [{ ...endpoint, url: "HTTP://10.0.0.1" }] }, /plain HTTP off loopback/],
    [
      "fallbacks in a circle, which it names (C119)",
      { models: [{ name: "x" }, { name: "a", fallbacks: ["bee"] }, { name: "b", aliases: ["bee"], fallbacks: ["a"] }] },
      /models\[1\]\.fallbacks.*a -> b -> a/,
    ],
    ["a model that is its own alias (C119)", { models: [{ name: "a", aliases: ["a"] }] }, /models\[0\].*'a'/],
    [
      "a profile that is not there",
      { models: [{ name: "m", routing_profile: "quick" }] },
      /models\[0\].*'quick'.*balanced/,
    ],
    ["a default profile that is not there", { router: { default_profile: "x" } }, /router\.default_profile.*'x'/],
    [
      "an endpoint that is the edge itself (C119)",
      { listen: ":9000", endpoints: [endpoint] },
      /endpoints\[0\]\.url.*own/,
    ],
    ["a price with a fraction", { auth: { default_price: { prompt_per_1k: 0.5 } } }, /prompt_per_1k/],
  ])("refuses %s", (_what, document, message) => {
    expect(() => read(document)).toThrow(message);
  });

  it("lets plain HTTP off loopback through where the operator says so", () => {
    const remote = { ...endpoint, url: "http://10.0.0.1", insecure: true };
    expect(read({ endpoints: [remote] }).endpoints[0]?.url).toBe("http://10.0.0.1");
  });

  it("takes another port, host or a port of its own choosing for another server", () => {
    for (const listen of ["127.0.0.1:9001", "10.0.0.1:9000", "127.0.0.1:0"])
      expect(read({ listen, endpoints: [endpoint] }).endpoints).toHaveLength(1);
  });

  it.each([
    ["http://127.0.0.1:1", true],
    ["http://127.9.9.9", true],
    ["http://[::1]:1", true],
    ["http://localhost:1", true],
    ["http://127.0.0.1.example", false],
    ["http://localhost.example", false],
    ["http://10.0.0.1", false],
  ])("knows whether %s is loopback", (url, loopback) => {
    expect(isLoopbackUrl(url)).toBe(loopback);
  });

  it("describes every key", () => {
    expect(configRows(edgeConfigSchema).filter(({ description }) => description === "")).toEqual([]);
  });

  it("is described by CONFIG.md files that equal what the built schemas say", async () => {
    const script = path.join(REPOSITORY, "scripts/generate-config.mjs");
    const check = promisify(execFile)(process.execPath, [script, "--check"]);
    await expect(check).resolves.toMatchObject({ stderr: "" });
  });
});
