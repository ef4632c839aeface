import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { isLoopback, loadHostConfig, originOf, readHostConfig } from "../../../../backend/config.ts";

const FILE = "/etc/steerage/host.yaml";
const read = (document: unknown, environment: Record<string, string> = {}) =>
  readHostConfig(document, environment, FILE);
const model = { name: "demo", source: "models/demo.gguf" };

describe("a host's configuration", () => {
  it("has the documented defaults", () => {
    const config = read({ node_id: "gpu-1" });
    expect(config).toMatchObject({
      host: "gpu-1",
      listenAddress: { address: "127.0.0.1", port: 8090 },
      heartbeat_interval: 1_000,
      reconnect_base: 500,
      reconnect_max: 30_000,
      slots: 8,
      max_pending: 10,
      context_length: 32_768,
      kv_cache_type: "q8_0",
      kv_layout: "auto",
      flash_attention: true,
      enable_embeddings: true,
      speculative_num_tokens: 5,
      drain_timeout: 30_000,
      max_body_bytes: 10 * 2 ** 20,
      warnings: [],
    });
    expect(originOf(config, 8090)).toBe("http://127.0.0.1:8090");
  });

  it("takes paths from where the file is", () => {
    const config = read({ models: [{ ...model, saes: [{ id: "l1", source: "../l1" }] }] });
    expect(config.models[0]).toMatchObject({ source: "/etc/steerage/models/demo.gguf", saes: [{ source: "/etc/l1" }] });
    expect(config.data).toBe("/etc/steerage/.steerage/host");
  });

  it("reads miLLM's environment names, which win over the file", () => {
    const config = read(
      { slots: 2, context_length: 100, logging: { level: "error" } },
      {
        GGUF_CONTEXT_LENGTH: "4096",
        GGUF_KV_CACHE_TYPE: "f16",
        GGUF_KV_LAYOUT: "unified",
        GGUF_FLASH_ATTENTION: "False",
        GGUF_ENABLE_EMBEDDINGS: "False",
        GGUF_TENSOR_SPLIT: "1,3",
        MAX_PENDING_REQUESTS: "32",
        SPECULATIVE_MODEL: "models/draft.gguf",
        SPECULATIVE_NUM_TOKENS: "8",
        GRACEFUL_UNLOAD_TIMEOUT: "2.5",
        LOG_LEVEL: "WARNING",
        LOG_FORMAT: "json",
        PORT: "9000",
      },
    );
    expect(config).toMatchObject({
      slots: 2,
      context_length: 4_096,
      kv_cache_type: "f16",
      kv_layout: "unified",
      flash_attention: false,
      enable_embeddings: false,
      tensor_split: [1, 3],
      max_pending: 32,
      speculative_model: "/etc/steerage/models/draft.gguf",
      speculative_num_tokens: 8,
      drain_timeout: 2_500,
      logging: { level: "warn", format: "json" },
      listenAddress: { address: "127.0.0.1", port: 9_000 },
    });
  });

  it("prefers our own name to miLLM's", () => {
    expect(read({}, { GGUF_CONTEXT_LENGTH: "1", STEERAGE_CONTEXT_LENGTH: "2" }).context_length).toBe(2);
  });

  it("reads MAX_CONCURRENT_REQUESTS=1 as the default with a warning, and STEERAGE_SLOTS=1 as one", () => {
    const config = read({}, { MAX_CONCURRENT_REQUESTS: "1" });
    expect([config.slots, config.warnings.length]).toEqual([8, 1]);
    expect(read({}, { MAX_CONCURRENT_REQUESTS: "4" })).toMatchObject({ slots: 4, warnings: [] });
    expect(read({}, { MAX_CONCURRENT_REQUESTS: "1", STEERAGE_SLOTS: "1" }).slots).toBe(1);
  });

  it("reads monitoring under miLLM's names, with callers' text off, and says what serial monitoring is not needed for", () => {
    const config = read(
      {},
      { SENSING_CONTEXT_TOKENS: "4", SENSING_MAX_EVENTS_PER_REQUEST: "7", CBM_FORCE_SERIAL_MONITORING: "true" },
    );
    expect(config.monitoring).toEqual({
      context_text: false,
      context_tokens: 4,
      history: 1_000,
      max_events_per_request: 7,
    });
    expect(config.warnings).toEqual([expect.stringContaining("CBM_FORCE_SERIAL_MONITORING")]);
    expect(read({}, { CBM_FORCE_SERIAL_MONITORING: "false" }).warnings).toEqual([]);
    expect(() => read({ monitoring: { context_tokens: 65 } })).toThrow("monitoring.context_tokens");
  });

  it("takes `server` and `servers` together, and the token from the environment or a file", () => {
    const config = read(
      { server: "http://127.0.0.1:1/", servers: ["http://127.0.0.1:2"] },
      { STEERAGE_HOST_TOKEN: "secret" },
    );
    expect([config.servers, config.token]).toEqual([["http://127.0.0.1:1", "http://127.0.0.1:2"], "secret"]);
    const folder = mkdtempSync(path.join(tmpdir(), "steerage-config-"));
    try {
      writeFileSync(path.join(folder, "token"), "from-file\n");
      writeFileSync(path.join(folder, "host.yaml"), "servers: [http://127.0.0.1:1]\ntoken_file: token\n");
      expect(loadHostConfig(path.join(folder, "host.yaml"), {}).token).toBe("from-file");
      writeFileSync(path.join(folder, "host.yaml"), "servers: [");
      expect(() => loadHostConfig(path.join(folder, "host.yaml"), {})).toThrow("is not YAML");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it.each([
    [{ listen: "0.0.0.0:8090" }, "listen: plain HTTP off loopback"],
    [{ listen: "somewhere" }, "listen: 'somewhere'"],
    [{ servers: ["http://edge.example:8081"], token: "t" }, "plain HTTP to 'http://edge.example:8081'"],
    [{ servers: ["HTTP://edge.example:8081"], token: "t" }, "plain HTTP to 'HTTP://edge.example:8081'"],
    [{ url: "ftp://gpu-1.example" }, "url: 'ftp://gpu-1.example' is not an origin"],
    [{ servers: ["edge"], token: "t" }, "servers: 'edge' is not an HTTP address"],
    [{ servers: ["http://127.0.0.1:1"] }, "token: needed"],
    [{ models: [model, model] }, "models[1].name: 'demo' is named twice"],
    [{ models: [{ name: "demo" }] }, "models[0].source"],
    [{ speculative_method: "guess" }, "speculative_method"],
    [{ models: [model], speculative_method: "draft_model" }, "models[0].speculative_model: speculative_method"],
    [{ models: [{ ...model, speculative_method: "draft_model" }] }, "models[0].speculative_model: speculative_method"],
    [{ speculative_num_tokens: 0 }, "speculative_num_tokens"],
    [{ models: [{ ...model, speculative_num_tokens: 65 }] }, "models[0].speculative_num_tokens"],
    [{ models: [model], flash_attention: false }, "models[0]: kv_cache_type q8_0 needs flash_attention"],
    [
      {
        models: [
          {
            ...model,
            saes: [
              { id: "a", source: "a" },
              { id: "a", source: "b" },
            ],
          },
        ],
      },
      "models[0].saes",
    ],
    [{ slotz: 3 }, "slotz"],
    [{ heartbeat_interval: "soon" }, "heartbeat_interval"],
    [{ heartbeat_interval: "1ms" }, "heartbeat_interval"],
  ])("refuses %j and names the key", (document, fault) => {
    expect(() => read(document)).toThrow(fault);
  });

  it("allows plain HTTP off loopback when told so, and HTTPS always", () => {
    expect(read({ listen: "0.0.0.0:8090", insecure: true }).listenAddress.address).toBe("0.0.0.0");
    expect(read({ servers: ["https://edge.example"], token: "t" }).servers).toEqual(["https://edge.example"]);
  });

  it("knows loopback by name and number", () => {
    expect(["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"].every(isLoopback)).toBe(true);
    expect(["127.example.com", "10.0.0.1", "0.0.0.0", "localhost.example"].some(isLoopback)).toBe(false);
  });
});
