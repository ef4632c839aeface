import { beforeEach, describe, expect, it } from "vitest";
import { SimAccount } from "../../../../backend/sim/account.ts";
import { Cancelled, generate, type GenerationPlan, ScriptedCut } from "../../../../backend/sim/generation.ts";
import { PrefixMemory } from "../../../../backend/sim/prefix-memory.ts";
import { simScriptSchema } from "../../../../backend/sim/script.ts";
import { Slots } from "../../../../backend/sim/slots.ts";
import type { EngineEvent } from "../../../../backend/ports/engine-events.ts";
import { ApiError } from "../../../../shared/errors/api-error.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const plan = (script: Record<string, unknown> = {}, over: Partial<GenerationPlan> = {}): GenerationPlan => ({
  script: simScriptSchema.parse(script),
  prompt: ["a", "b", "c", "d"],
  salt: "p1",
  seed: 1,
  limit: 1_000,
  ignoreEnd: false,
  ...over,
});

describe("a scripted generation", () => {
  let clock: ManualClock;
  let account: SimAccount;
  let prefixes: PrefixMemory;
  let crashes: number;
  let events: EngineEvent[];

  beforeEach(() => {
    clock = new ManualClock();
    const ready: EngineEvent & { type: "ready" } = {
      type: "ready",
      model: "sim",
      engine: "sim",
      slots: 1,
      context_length: 100,
      max_output: null,
      capabilities: [],
      saes: [],
    };
    account = new SimAccount({ clock, slots: new Slots(1, 1), ready, kvCells: 100 });
    prefixes = new PrefixMemory();
    crashes = 0;
    events = [];
    account.follow((event) => events.push(event));
  });

  /** Runs a generation to its end while time passes in steps of 1 ms. */
  const run = async (of: GenerationPlan, abort = new AbortController()) => {
    const work = account.begin({ requestId: "req_a", attempt: 1 });
    const times: number[] = [];
    const tokens: { text: string; finishReason: string | null }[] = [];
    const progress = { over: false };
    const reading = (async () => {
      try {
        const stream = generate(of, work, abort.signal, { clock, account, prefixes, crash: () => crashes++ });
        for await (const token of stream) {
          times.push(clock.monotonicMs());
          tokens.push(token);
        }
        return null;
      } catch (error) {
        return error;
      } finally {
        progress.over = true;
      }
    })();
    for (let step = 0; step < 2_000 && !progress.over; step++) {
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      if (!progress.over) clock.advance(1);
    }
    // A crashed generation never comes back.
    return { work, times, tokens, error: progress.over ? await reading : null };
  };

  it("ends with an end-of-generation token that is counted and has no text", async () => {
    const { work, tokens } = await run(plan({ output_tokens: 3 }));
    expect(tokens.map(({ text }) => text !== "")).toEqual([true, true, false]);
    expect(tokens.at(-1)?.finishReason).toBe("stop");
    expect(work.computedCompletion).toBe(3);
  });

  it("stops at the limit with `length`, and goes on past the end when told to ignore it", async () => {
    expect((await run(plan({ output_tokens: 9 }, { limit: 2 }))).tokens.map((t) => t.finishReason)).toEqual([
      null,
      "length",
    ]);
    const ignoring = await run(plan({ output_tokens: 2 }, { limit: 5, ignoreEnd: true }));
    expect(ignoring.tokens.map(({ text }) => text !== "")).toEqual([true, true, true, true, true]);
  });

  it("gives the same text for the same seed and another for another", async () => {
    const texts: string[] = [];
    for (const seed of [1, 1, 2])
      texts.push((await run(plan({ output_tokens: 9 }, { seed }))).tokens.map(({ text }) => text).join(""));
    expect(texts[0]).toBe(texts[1]);
    expect(texts[0]).not.toBe(texts[2]);
  });

  it("keeps the pace of prefill, first token and tokens", async () => {
    const { times } = await run(
      plan({ ttft_ms: 30, tokens_per_second: 100, prefill_tokens_per_second: 100, output_tokens: 3 }),
    );
    expect(times).toEqual([70, 80, 90]);
  });

  it("takes a prompt it has seen from the cache, inside one salt, and computes at least one token", async () => {
    await run(plan());
    expect((await run(plan({}, { prompt: ["a", "b", "x"] }))).work).toMatchObject({
      computedPrompt: 1,
      cachedPrompt: 2,
    });
    expect((await run(plan())).work).toMatchObject({ computedPrompt: 1, cachedPrompt: 3 });
    expect((await run(plan({}, { salt: "p2" }))).work).toMatchObject({ computedPrompt: 4, cachedPrompt: 0 });
  });

  it("stops computing when the caller leaves, in prefill as in generation", async () => {
    const early = new AbortController();
    clock.after(100, () => early.abort());
    const prompt = Array.from({ length: 40 }, (_, place) => String(place));
    const cut = await run(plan({ prefill_tokens_per_second: 200 }, { prompt }), early);
    expect(cut.error).toBeInstanceOf(Cancelled);
    expect(cut.work.computedPrompt).toBeGreaterThan(5);
    expect(cut.work.computedPrompt).toBeLessThan(40);
    const late = new AbortController();
    clock.after(35, () => late.abort());
    const stopped = await run(plan({ tokens_per_second: 100 }), late);
    expect([stopped.error, stopped.work.computedCompletion]).toEqual([expect.any(Cancelled), 4]);
  });

  it("fails, is cut or crashes after the scripted number of tokens", async () => {
    const failed = await run(plan({ error_after: 2 }));
    expect([failed.tokens.length, failed.error]).toEqual([2, expect.any(ApiError)]);
    const cut = await run(plan({ cut_after: 1 }));
    expect([cut.tokens.length, cut.error]).toEqual([1, expect.any(ScriptedCut)]);
    const crashed = await run(plan({ crash_after: 3 }));
    expect([crashed.tokens.length, crashes]).toEqual([3, 1]);
  });

  it("tells load with what runs, and one exact account at the end", async () => {
    const { work } = await run(plan({ output_tokens: 3, tokens_per_second: 10 }));
    const loads = events.filter((event) => event.type === "load");
    expect(loads.some(({ running }) => running[0]?.computed_completion === 2)).toBe(true);
    account.end(work, "completed", "stop");
    account.end(work, "failed", "error");
    expect(events.filter(({ type }) => type === "ended")).toEqual([
      {
        type: "ended",
        request_id: "req_a",
        attempt: 1,
        computed_prompt: 4,
        cached_prompt: 0,
        computed_completion: 3,
        outcome: "completed",
      },
    ]);
  });
});
