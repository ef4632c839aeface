import { ApiError } from "../../shared/errors/api-error.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { SimAccount, Work } from "./account.ts";
import type { PrefixMemory } from "./prefix-memory.ts";
import type { SimScript } from "./script.ts";
import { seededRandom, wordAt } from "./text.ts";

export interface GenerationPlan {
  readonly script: SimScript;
  readonly prompt: readonly string[];
  readonly salt: string;
  readonly seed: number;
  /** Most tokens, the caller's limit and the window's rest together. */
  readonly limit: number;
  readonly ignoreEnd: boolean;
}

export interface GenerationDeps {
  readonly clock: Clock;
  readonly account: SimAccount;
  readonly prefixes: PrefixMemory;
  /** Ends this process at once, as a fault of native code would. */
  readonly crash: () => void;
}

/** The script says that the connection ends here, without a word. */
export class ScriptedCut extends Error {}

/** The script says that the request is refused with this HTTP status. */
export class ScriptedRefusal extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`refused with ${status}`);
    this.status = status;
  }
}

/** The caller went away. */
export class Cancelled extends Error {}

export interface GeneratedToken {
  /** Empty for the end of generation, which is counted as every token is. */
  readonly text: string;
  readonly finishReason: "stop" | "length" | null;
}

/** Prefills and then yields token by token at the script's pace; throws ApiError, ScriptedCut or Cancelled. */
export async function* generate(
  plan: GenerationPlan,
  work: Work,
  signal: AbortSignal,
  deps: GenerationDeps,
): AsyncGenerator<GeneratedToken> {
  const { script } = plan;
  await prefill(plan, work, signal, deps);
  await pause(script.ttft_ms, signal, deps.clock);
  const random = seededRandom(plan.seed);
  const end = plan.ignoreEnd ? plan.limit : Math.min(plan.limit, script.output_tokens);
  const stops = !plan.ignoreEnd && script.output_tokens <= plan.limit;
  const startMs = deps.clock.monotonicMs();
  for (let index = 0; index < end; index++) {
    await fault(index, script, deps);
    if (script.tokens_per_second > 0) {
      const dueMs = startMs + (index * 1_000) / script.tokens_per_second;
      await pause(dueMs - deps.clock.monotonicMs(), signal, deps.clock);
    }
    if (signal.aborted) throw new Cancelled();
    deps.account.addToken(work);
    const last = index === end - 1;
    const text = last && stops ? "" : wordAt(index, random);
    yield { text, finishReason: last ? (stops ? "stop" : "length") : null };
  }
}

async function prefill(plan: GenerationPlan, work: Work, signal: AbortSignal, deps: GenerationDeps): Promise<void> {
  const cached = deps.prefixes.take(plan.salt, plan.prompt);
  const toCompute = plan.prompt.length - cached;
  const pace = plan.script.prefill_tokens_per_second;
  if (pace === 0) {
    deps.account.addPrompt(work, toCompute, cached);
    return;
  }
  deps.account.addPrompt(work, 0, cached);
  const startMs = deps.clock.monotonicMs();
  // Counted in steps of 50 ms, so that a prompt that is cancelled half-way has half its tokens.
  for (let done = 0; done < toCompute;) {
    await pause(Math.min(50, ((toCompute - done) * 1_000) / pace), signal, deps.clock);
    const now = Math.min(toCompute, Math.ceil(((deps.clock.monotonicMs() - startMs) * pace) / 1_000));
    if (now > done) deps.account.addPrompt(work, now - done, 0);
    done = Math.max(done, now);
  }
}

async function fault(index: number, script: SimScript, { crash }: GenerationDeps): Promise<void> {
  if (script.crash_after === index) {
    crash();
    await new Promise(() => undefined);
  }
  if (script.error_after === index) throw new ApiError("engine_failed", { source: "backend" });
  if (script.cut_after === index) throw new ScriptedCut();
}

/** Waits, or throws Cancelled as soon as the caller is gone. */
export async function pause(ms: number, signal: AbortSignal, clock: Clock): Promise<void> {
  if (signal.aborted) throw new Cancelled();
  if (ms <= 0) return;
  await new Promise<void>((resolve, reject) => {
    const leave = (): void => {
      cancel();
      reject(new Cancelled());
    };
    const cancel = clock.after(ms, () => {
      signal.removeEventListener("abort", leave);
      resolve();
    });
    signal.addEventListener("abort", leave, { once: true });
  });
}
