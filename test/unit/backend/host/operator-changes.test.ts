import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { OperatorChanges, withAttached, withDetached } from "../../../../backend/host/operator-changes.ts";
import { NO_WISHES, wishedSaes } from "../../../../backend/ports/operator-wishes.ts";
import { keptLogger } from "../../../support/silent-logger.ts";

const sae = (id: string, folder = `/saes/${id}`, required = true) => ({
  id,
  path: folder,
  layer: null,
  calibration_text: null,
  serve_anyway: false,
  required,
});
const CONFIGURED = [sae("a"), sae("b")];
const idsOf = (saes: readonly { id: string; path: string }[]) => saes.map(({ id, path: at }) => `${id} ${at}`);

describe("what an operator changed of a model's SAEs", () => {
  it("is laid over its configuration: swapped in place, added at the end, left out", () => {
    const swapped = withAttached(NO_WISHES, { id: "a", path: "/other" }, CONFIGURED);
    const added = withAttached(swapped, { id: "c", path: "/saes/c" }, CONFIGURED);
    const wishes = withDetached(added, "b", CONFIGURED);
    expect(idsOf(wishedSaes(CONFIGURED, wishes))).toEqual(["a /other", "c /saes/c"]);
    expect(wishedSaes(CONFIGURED, wishes).map(({ required }) => required)).toEqual([false, false]);
  });

  it("is gone when it is taken back", () => {
    const without = withDetached(NO_WISHES, "a", CONFIGURED);
    expect(idsOf(wishedSaes(CONFIGURED, without))).toEqual(["b /saes/b"]);
    expect(withAttached(without, { id: "a", path: "/saes/a" }, CONFIGURED)).toEqual(NO_WISHES);
    const added = withAttached(NO_WISHES, { id: "c", path: "/saes/c" }, CONFIGURED);
    expect(withDetached(added, "c", CONFIGURED)).toEqual(NO_WISHES);
  });

  it("keeps an SAE that was attached again after it was detached, with what is new of it", () => {
    const wishes = withAttached(withDetached(NO_WISHES, "a", CONFIGURED), { id: "a", path: "/saes/a", layer: 3 }, [
      ...CONFIGURED,
    ]);
    expect(wishedSaes(CONFIGURED, wishes).map(({ id, layer }) => [id, layer])).toEqual([
      ["a", 3],
      ["b", null],
    ]);
  });
});

describe("the file of an operator's changes", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), "steerage-changes-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const file = () => path.join(folder, "operator-changes.json");
  const openChanges = () => OperatorChanges.open({ file: file(), logger: keptLogger().logger });

  it("gives the next host what this one was told, by model", async () => {
    const wishes = withDetached(NO_WISHES, "b", CONFIGURED);
    expect(await (await openChanges()).remember("m", wishes)).toBe(true);
    const next = await openChanges();
    expect([next.of("m"), next.of("other")]).toEqual([wishes, NO_WISHES]);
    await next.remember("m", NO_WISHES);
    expect(JSON.parse(readFileSync(file(), "utf8"))).toEqual({ models: {} });
  });

  it("is moved aside when it cannot be read, and nothing is lost or in the way", async () => {
    writeFileSync(file(), '{"models": {"m": 7}}');
    const changes = await openChanges();
    expect(changes.of("m")).toEqual(NO_WISHES);
    expect(readFileSync(`${file()}.unreadable`, "utf8")).toContain('"m": 7');
    expect(existsSync(file())).toBe(false);
  });

  it("says when a change holds in memory only, and goes on", async () => {
    const changes = await openChanges();
    mkdirSync(`${file()}.new`);
    const wishes = withDetached(NO_WISHES, "a", CONFIGURED);
    expect(await changes.remember("m", wishes)).toBe(false);
    expect(changes.of("m")).toEqual(wishes);
    rmSync(`${file()}.new`, { recursive: true });
    expect(await changes.remember("n", wishes)).toBe(true);
    expect((await openChanges()).of("m")).toEqual(wishes);
  });

  it("lets changes of one model come one after the other, and an engine start after them", async () => {
    const changes = await openChanges();
    const order: string[] = [];
    let finish = (): void => undefined;
    const first = changes.change("m", async () => {
      await new Promise<void>((resolve) => (finish = resolve));
      order.push("first");
      throw new Error("refused");
    });
    const second = changes.change("m", () => Promise.resolve(order.push("second")));
    const settled = changes.settled("m").then(() => order.push("engine"));
    await changes.change("n", () => Promise.resolve(order.push("other model")));
    finish();
    await expect(first).rejects.toThrow("refused");
    await Promise.all([second, settled]);
    expect(order).toEqual(["other model", "first", "second", "engine"]);
  });
});
