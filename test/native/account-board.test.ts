import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeAccountBoard, NativeModel } from "../../backend/native/binding.ts";
import { readAccountBoard, type AccountBoard } from "../../backend/ports/account-board.ts";
import { codeOf, DEMO_F32, nativeAddon, NativeSession, openModel, repositoryFile } from "../support/native-harness.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

describe("the account board", () => {
  let model: NativeModel;
  let session: NativeSession;
  let board: NativeAccountBoard;
  const { folder, remove } = temporaryFolder();
  const file = join(folder, "engine.accounts");
  beforeAll(async () => {
    board = (await nativeAddon()).openAccountBoard(file);
    model = await openModel(DEMO_F32);
    session = await NativeSession.open(model, {
      sequenceCount: 2,
      cellCount: 512,
      batchTokens: 32,
      accounts: board,
    });
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
    remove();
  });

  const read = (): AccountBoard => {
    const found = readAccountBoard(readFileSync(file));
    if (found === null) throw new Error("not a board");
    return found;
  };
  const tokens = (): Int32Array => model.tokenize("once upon a time in the snow there was a", true, false);

  it("says of every job what its end says, reused cells included", async () => {
    const prompt = tokens();
    const first = board.claim("req_1.1", prompt.length, 0);
    await session.run({ tokens: prompt, sequenceId: 0, maxTokens: 9, accountRecord: first });
    const account = { computed_prompt: prompt.length, cached_prompt: 0, computed_completion: 9, ended: true };
    expect(read().accountOf("req_1.1")).toEqual(account);

    const keepTokens = prompt.length - 2;
    const second = board.claim("req_2.1", prompt.length, keepTokens);
    await session.run({ tokens: prompt, sequenceId: 0, maxTokens: 3, keepTokens, accountRecord: second });
    expect(read().accountOf("req_2.1")).toEqual({
      computed_prompt: 2,
      cached_prompt: keepTokens,
      computed_completion: 3,
      ended: true,
    });
  });

  it("adds up the choices of one request, whose prompt is counted once", async () => {
    const prompt = tokens();
    for (const promptTokens of [prompt.length, 0]) {
      const accountRecord = board.claim("req_n.2", promptTokens, 0);
      await session.run({ tokens: prompt, sequenceId: 0, maxTokens: 4, accountRecord });
    }
    expect(read().accountOf("req_n.2")).toMatchObject({ computed_prompt: prompt.length, computed_completion: 8 });
  });

  it("follows a job while it runs", async () => {
    const accountRecord = board.claim("req_3.1", tokens().length, 0);
    const seen: number[] = [];
    session.onStep = () => seen.push(read().accountOf("req_3.1")?.computed_completion ?? -1);
    await session.run({ tokens: tokens(), sequenceId: 1, maxTokens: 30, accountRecord, ignoreEndOfGeneration: true });
    session.onStep = () => undefined;
    expect(seen.length).toBeGreaterThan(1);
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect(read().accountOf("req_3.1")).toMatchObject({ computed_completion: 30, ended: true });
  });

  it("keeps what is running when its places are used up, and says that something is missing", () => {
    const running = board.claim("req_long.1", 7, 0);
    for (let n = 0; n < 3_000; n++) board.release(board.claim(`req_short${n}.1`, 1, 0));
    expect(read().accountOf("req_long.1")).toMatchObject({ ended: false });
    expect(read().accountOf("req_short0.1")).toBeNull();
    expect(read().accountOf("req_short2999.1")).toMatchObject({ ended: true });
    expect(read().isComplete).toBe(true);
    expect(board.claim("x".repeat(200), 1, 0)).toBe(-1);
    expect(read().isComplete).toBe(false);
    board.release(running);
  });

  it("is refused where it cannot be made, and not read where it is none", async () => {
    const addon = await nativeAddon();
    expect(await codeOf(() => addon.openAccountBoard("/nowhere/board"))).toBe("invalid_argument");
    expect(readAccountBoard(new Uint8Array(4_096))).toBeNull();
    expect(readAccountBoard(readFileSync(file).subarray(0, 1_000))).toBeNull();
  });

  it("outlives a process that is killed in the middle of a step", async () => {
    const left = join(folder, "killed.accounts");
    const child = spawn(
      process.execPath,
      ["--import", "tsx", repositoryFile("test/support/run-until-killed.ts"), left],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    const line = await new Promise<string>((resolve) => child.stdout.once("data", resolve));
    child.kill("SIGKILL");
    await once(child, "exit");
    const account = readAccountBoard(readFileSync(left))?.accountOf("req_killed.1");
    expect(account).toMatchObject({ computed_prompt: 3, ended: false });
    // It had told of this many tokens, and went on until it was killed.
    expect(account?.computed_completion).toBeGreaterThanOrEqual(Number(line));
  });
});
