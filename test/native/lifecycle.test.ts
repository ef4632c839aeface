import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import type { NativeModel } from "../../backend/native/binding.ts";
import { codeOf, DEMO_Q8, NativeSession, openModel, repositoryFile } from "../support/native-harness.ts";

const tokensOf = (model: NativeModel): Int32Array => model.tokenize("Once upon a time", true, false);

describe("the life of models and contexts", () => {
  it("refuses to dispose a model that a context still uses", async () => {
    const model = await openModel(DEMO_Q8);
    const opening = NativeSession.open(model);
    expect(await codeOf(() => model.dispose())).toBe("invalid_argument");
    const session = await opening;
    expect(await codeOf(() => model.dispose())).toBe("invalid_argument");
    await session.context.dispose();
    await model.dispose();
    await model.dispose();
    expect(await codeOf(() => model.tokenize("x", true, true))).toBe("disposed");
    expect(await codeOf(() => NativeSession.open(model))).toBe("disposed");
  });

  it("cancels what runs when a context is disposed, and tells every job before the promise is done", async () => {
    const model = await openModel(DEMO_Q8);
    const session = await NativeSession.open(model);
    const reasons: string[] = [];
    const jobs = [0, 1, 2].map((sequenceId) => {
      const wish = { tokens: tokensOf(model), sequenceId, maxTokens: 100_000, ignoreEndOfGeneration: true };
      return session.run(wish).then(({ finished }) => reasons.push(finished.reason));
    });
    await new Promise<void>((resolve) => {
      session.onStep = () => {
        resolve();
      };
    });
    await session.context.dispose();
    await Promise.all(jobs);
    expect(reasons).toEqual(["cancelled", "cancelled", "cancelled"]);
    await session.context.dispose();
    expect(await codeOf(() => session.start({ tokens: tokensOf(model) }))).toBe("disposed");
    expect(session.counters().steps).toBeGreaterThan(0);
    await model.dispose();
  });

  it("opens and closes contexts again and again", async () => {
    const model = await openModel(DEMO_Q8);
    for (let round = 0; round < 5; round++) {
      const session = await NativeSession.open(model);
      const outcome = await session.run({ tokens: tokensOf(model), maxTokens: 3 });
      expect(outcome.tokens.length).toBe(3);
      await session.context.dispose();
    }
    await model.dispose();
  });

  it("ends contexts in the middle of their work 200 times, with unloads in parallel (C072)", async () => {
    let model = await openModel(DEMO_Q8);
    const reasons: string[] = [];
    for (let round = 0; round < 200; round++) {
      const session = await NativeSession.open(model);
      const running = [0, 1].map((sequenceId) =>
        session.run({ tokens: tokensOf(model), sequenceId, maxTokens: 500, ignoreEndOfGeneration: true }),
      );
      // Every other time at once, else while a step is on its way.
      if (round % 2 === 1) await new Promise((resolve) => setImmediate(resolve));
      const ending = session.context.dispose();
      const unload = codeOf(() => model.dispose());
      await ending;
      for (const { finished } of await Promise.all(running)) reasons.push(finished.reason);
      if ((await unload) === "no error") model = await openModel(DEMO_Q8);
    }
    expect(reasons).toEqual(Array.from({ length: 400 }, () => "cancelled"));
    await model.dispose();
  }, 30_000);

  it("refuses options that make no sense", async () => {
    const model = await openModel(DEMO_Q8);
    for (const wrong of [{ sequenceCount: 0 }, { sequenceCount: 257 }, { batchTokens: 4 }, { threads: 0 }]) {
      expect(await codeOf(() => NativeSession.open(model, wrong))).toBe("invalid_argument");
    }
    await model.dispose();
  });

  it.each([
    ["ends by itself with an idle context open", ""],
    ["ends in the middle of a job", "setTimeout(() => process.exit(0), 50);"],
    ["ends in the middle of opening a context", "void open(); process.exit(0);"],
    [
      "ends right behind a failed call that wrote log lines",
      "await openModel('/dev/null').catch(() => process.exit(0));",
    ],
  ])("lets the process %s", (_, ending) => {
    const script = `
      const { DEMO_Q8, NativeSession, openModel } = await import(${JSON.stringify(
        repositoryFile("test/support/native-harness.ts"),
      )});
      const model = await openModel(DEMO_Q8);
      const open = () => NativeSession.open(model);
      const session = await open();
      const tokens = model.tokenize("Once", true, false);
      const job = session.run({ tokens, maxTokens: ${ending === "" ? 4 : 100_000}, ignoreEndOfGeneration: true });
      ${ending}
      await job;
      console.log("finished");`;
    const child = spawnSync(process.execPath, ["--import", "tsx", "--input-type=module", "--eval", script], {
      cwd: repositoryFile("."),
      encoding: "utf8",
      timeout: 30_000,
    });
    expect({ status: child.status, signal: child.signal, stderr: child.stderr }).toEqual({
      status: 0,
      signal: null,
      stderr: "",
    });
    expect(child.stdout).toBe(ending === "" ? "finished\n" : "");
  });
});
