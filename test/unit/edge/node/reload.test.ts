import { describe, expect, it } from "vitest";
import { edgeConfigSchema, type EdgeConfig, type EdgeConfigInput } from "../../../../edge/config.ts";
import type { LoadedConfig } from "../../../../edge/node/load-config.ts";
import { fixedChanges, Reload } from "../../../../edge/node/reload.ts";
import { ConfigError, readConfig } from "../../../../shared/config/read-config.ts";
import { silentLogger } from "../../../support/dispatch-fakes.ts";

const config = (document: EdgeConfigInput = {}): EdgeConfig => readConfig(edgeConfigSchema, document, "test");
const loaded = (of: EdgeConfig): LoadedConfig => ({
  config: of,
  dataDirectory: "/",
  databaseUrl: "file:/x",
  databaseAuthToken: undefined,
});

describe("keys that need a restart", () => {
  it.each([
    [{ name: "other" }, ["name"]],
    [{ listen: "127.0.0.1:9" }, ["listen"]],
    [{ auth: { store: "x.db", default_rpm: 1 } }, ["auth.store"]],
    [{ auth: { default_rpm: 1 }, router: { retries: 0 }, models: [{ name: "m" }] }, []],
    [{ logging: { level: "debug" } }, []],
    [{ logging: { format: "json" }, control: { lease_ttl: "20s" } }, ["control.lease_ttl", "logging.format"]],
  ] satisfies [EdgeConfigInput, string[]][])("in %j are %j", (document, keys) => {
    expect(fixedChanges(config(), config(document))).toEqual(keys);
  });
});

describe("a reload", () => {
  const setUp = (prepare: (next: EdgeConfig) => Promise<() => void>) => {
    const state = { current: config(), next: config({ router: { retries: 0 } }) };
    const reload = new Reload({
      logger: silentLogger,
      current: () => state.current,
      load: () => Promise.resolve(loaded(state.next)),
      prepare,
    });
    return { state, reload };
  };

  it("applies what is new, once", async () => {
    const applied: number[] = [];
    const { state, reload } = setUp((next) =>
      Promise.resolve(() => {
        state.current = next;
        applied.push(next.router.retries);
      }),
    );
    expect(await Promise.all([reload.request(), reload.request()])).toEqual(["applied", "unchanged"]);
    expect(applied).toEqual([0]);
  });

  it("leaves everything as it is where a key needs a restart, the file is wrong, or the preparation fails", async () => {
    const applied: string[] = [];
    const { state, reload } = setUp((next) =>
      next.router.retries === 9
        ? Promise.reject(new Error("the database is away"))
        : Promise.resolve(() => void applied.push("applied")),
    );
    state.next = config({ name: "other", router: { retries: 0 } });
    expect(await reload.request()).toBe("refused");
    state.next = config({ router: { retries: 9 } });
    expect(await reload.request()).toBe("refused");
    const wrong = new Reload({
      logger: silentLogger,
      current: () => state.current,
      load: () => Promise.reject(new ConfigError("edge.yaml cannot be used")),
      prepare: () => Promise.resolve(() => void applied.push("applied")),
    });
    expect(await wrong.request()).toBe("refused");
    expect(applied).toEqual([]);
  });

  it("goes on after one that was refused", async () => {
    const { state, reload } = setUp((next) => Promise.resolve(() => void (state.current = next)));
    state.next = config({ name: "other" });
    expect(await reload.request()).toBe("refused");
    state.next = config({ router: { retries: 1 } });
    expect(await reload.request()).toBe("applied");
  });
});
