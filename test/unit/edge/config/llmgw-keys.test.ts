import { describe, expect, it } from "vitest";
import { hostConfigSchema } from "../../../../backend/config.ts";
import { edgeConfigSchema } from "../../../../edge/config.ts";
import { LLMGW_KEYS, llmgwHint } from "../../../../edge/config/llmgw-keys.ts";
import { configRows } from "../../../../shared/config/reference.ts";

/** Keys by block, as llmgw's own reference counts them. */
const COUNTS = {
  Admission: 7,
  Auth: 12,
  Band: 3,
  Capabilities: 3,
  Config: 18,
  Control: 9,
  Endpoint: 7,
  Landing: 2,
  LlamaCppConfig: 2,
  Mirror: 4,
  Model: 12,
  Monitoring: 3,
  Options: 4,
  Prefix: 7,
  Price: 2,
  Profile: 15,
  Router: 15,
  SGLangConfig: 1,
  SLO: 2,
  Scaling: 3,
  Scoring: 4,
  Server: 14,
  SimConfig: 1,
  Threads: 2,
  Timeouts: 6,
  VLLMConfig: 3,
};

describe("the keys of llmgw", () => {
  it("are all told of, each once", () => {
    const counts: Record<string, number> = {};
    for (const { block } of LLMGW_KEYS) counts[block] = (counts[block] ?? 0) + 1;
    expect(counts).toEqual(COUNTS);
    expect(new Set(LLMGW_KEYS.map(({ block, name }) => `${block}.${name}`)).size).toBe(LLMGW_KEYS.length);
  });

  it.each(LLMGW_KEYS.filter(({ path }) => path !== null))("$block $name leads to $path, which exists", (key) => {
    const schema = key.file === "host" ? hostConfigSchema : edgeConfigSchema;
    expect(configRows(schema).map(({ path }) => path)).toContain(key.path);
  });

  it("say why where nothing has their place", () => {
    for (const { path, note } of LLMGW_KEYS) expect(path ?? note).not.toBeNull();
  });

  it("are explained to whoever still has them in a file", () => {
    expect(llmgwHint("router", "activation_wait")).toMatch(/router\.admission\.queue_ttl_without_replica/);
    expect(llmgwHint("", "mirror")).toMatch(/no place here/);
    expect(llmgwHint("control", "base_backoff")).toMatch(/file of a host it is 'restart_base'/);
    expect(llmgwHint("router", "made_up")).toBeNull();
    expect(llmgwHint("auth", "activation_wait")).toBeNull();
  });
});
