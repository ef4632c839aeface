import { describe, expect, it } from "vitest";
import { sha256OnNode } from "../../../../../edge/node/sha256.node.ts";
import type { IdempotencySettings } from "../../../../../edge/dispatch/idempotency/answer-keeper.ts";
import { IdempotentDispatch } from "../../../../../edge/dispatch/idempotency/idempotent-dispatch.ts";
import type { InferenceRequest } from "../../../../../edge/dispatch/inference-request.ts";
import type { AnswerClaim, AnswerKey, AnswerStore, KeptAnswer } from "../../../../../edge/ports/answer-store.ts";
import type { ResponseWriter } from "../../../../../edge/ports/response-writer.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";
import {
  inferenceRequest,
  RecordingLimits,
  RecordingWriter,
  silentLogger,
} from "../../../../support/dispatch-fakes.ts";

const SETTINGS: IdempotencySettings = {
  keepMs: 86_400_000,
  maxAnswerBytes: 1_000,
  maxProjectBytes: 10_000,
  maxKeysPerProject: 3,
  lingerMs: 30_000,
  waitMs: 60_000,
};

/** What a database keeps, without its time. */
class FakeAnswers implements AnswerStore {
  readonly rows = new Map<string, { claim: AnswerClaim; answer: KeptAnswer | null }>();
  isAway = false;
  renewed = 0;

  async claimAnswer(claim: AnswerClaim, { maxKeys }: { maxKeys: number }) {
    this.#check();
    const row = this.rows.get(claim.keySha256);
    if (row === undefined && this.rows.size >= maxKeys) return { kind: "full" } as const;
    if (row === undefined) {
      this.rows.set(claim.keySha256, { claim, answer: null });
      return { kind: "claimed" } as const;
    }
    if (row.claim.fingerprint !== claim.fingerprint) return { kind: "different" } as const;
    return row.answer === null ? ({ kind: "running" } as const) : ({ kind: "kept", answer: row.answer } as const);
  }

  async keepAnswer({ keySha256 }: AnswerKey, answer: KeptAnswer): Promise<void> {
    this.#check();
    const row = this.rows.get(keySha256);
    if (row !== undefined) row.answer = answer;
  }

  async dropClaim({ keySha256 }: AnswerKey): Promise<void> {
    this.#check();
    this.rows.delete(keySha256);
  }

  async renewClaims(): Promise<void> {
    this.#check();
    this.renewed += 1;
  }

  async forgetAnswers(): Promise<void> {}

  #check(): void {
    if (this.isAway) throw new Error("away");
  }
}

interface Run {
  readonly request: InferenceRequest;
  readonly writer: ResponseWriter;
  /** The run of the dispatcher ends. */
  readonly done: () => void;
}

function setUp(store = new FakeAnswers(), settings: Partial<IdempotencySettings> = {}) {
  const clock = new ManualClock();
  const runs: Run[] = [];
  const state = { draining: false };
  const idempotent = new IdempotentDispatch({
    clock,
    logger: silentLogger,
    store,
    limits: new RecordingLimits(),
    sha256: sha256OnNode,
    holder: "this",
    settings: () => ({ ...SETTINGS, ...settings }),
    draining: () => state.draining,
    run: (request, writer) => new Promise((done) => runs.push({ request, writer, done })),
  });
  let lastId = 0;
  const ask = (idempotencyKey: string | null, body: Record<string, unknown> = {}) => {
    const writer = new RecordingWriter();
    const options = { requestId: `req_${++lastId}`, receivedAtMs: clock.nowMs() };
    const request = inferenceRequest(body, idempotencyKey === null ? options : { ...options, idempotencyKey });
    return { writer, done: idempotent.run(request, writer) };
  };
  return { clock, store, runs, state, ask };
}

/** Hashes and the fake store take a few turns of the loop. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function until(isTrue: () => boolean): Promise<void> {
  for (let turn = 0; turn < 500 && !isTrue(); turn += 1) await settled();
  expect(isTrue()).toBe(true);
}

function finish(run: Run | undefined, text: string, status = 200): void {
  if (run === undefined) throw new Error("nothing runs");
  run.writer.start(status, {
    "content-type": "application/json",
    "x-request-id": run.request.requestId,
    "x-ratelimit-remaining-requests": "99",
  });
  run.writer.write(text);
  run.writer.end();
  run.done();
}

const codeOf = (writer: RecordingWriter): [number, string] => {
  const body: { error: { code: string } } = JSON.parse(writer.text);
  return [writer.status, body.error.code];
};

describe("a request with an Idempotency-Key", () => {
  it("is run once, and its repetitions get its bytes: while it runs, after it, and from another process", async () => {
    const { store, runs, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    const second = ask("key-1");
    await settled();
    finish(runs[0], '{"a":1}');
    await Promise.all([first.done, second.done]);
    const third = ask("key-1");
    await third.done;
    const elsewhere = setUp(store);
    const fourth = elsewhere.ask("key-1");
    await fourth.done;
    expect([runs.length, elsewhere.runs.length]).toEqual([1, 0]);
    const repeated = [second, third, fourth].map(({ writer }) => writer);
    for (const writer of repeated) {
      expect([writer.status, writer.text, writer.ended]).toEqual([200, '{"a":1}', true]);
      expect(writer.headers).toMatchObject({
        "x-request-id": "req_1",
        "idempotent-replayed": "true",
        "x-ratelimit-remaining-requests": "9",
      });
    }
    expect(first.writer.headers["idempotent-replayed"]).toBeUndefined();
  });

  it("without a key, or where all of it is off, is run as it is", async () => {
    const { runs, ask } = setUp(new FakeAnswers(), { keepMs: 0 });
    for (const key of [null, "key-1", "key-1"]) void ask(key);
    await settled();
    expect(runs).toHaveLength(3);
  });

  it("that asks for something else is refused, while the first runs and after it", async () => {
    const { runs, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    const during = ask("key-1", { temperature: 1 });
    await during.done;
    finish(runs[0], "{}");
    await first.done;
    const after = ask("key-1", { temperature: 1 });
    await after.done;
    expect([codeOf(during.writer), codeOf(after.writer)]).toEqual([
      [422, "idempotency_key_reused"],
      [422, "idempotency_key_reused"],
    ]);
    expect(runs).toHaveLength(1);
  });

  it("runs anew after an error, whoever waited for it included", async () => {
    const { runs, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    const second = ask("key-1");
    await settled();
    finish(runs[0], "{}", 503);
    await first.done;
    expect(first.writer.status).toBe(503);
    await until(() => runs.length === 2);
    finish(runs[1], '{"b":2}');
    await second.done;
    expect([second.writer.status, second.writer.text]).toEqual([200, '{"b":2}']);
    expect(second.writer.headers["idempotent-replayed"]).toBeUndefined();
  });

  it("goes on without its client, whose repetition gets the answer", async () => {
    const { clock, runs, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    first.writer.leave();
    clock.advance(10_000);
    expect(runs[0]?.writer.closed).toBe(false);
    const second = ask("key-1");
    await settled();
    finish(runs[0], '{"a":1}');
    await Promise.all([first.done, second.done]);
    expect([second.writer.text, runs.length]).toEqual(['{"a":1}', 1]);
  });

  it("is given up when nobody comes back, at once where the edge is ending", async () => {
    const { clock, store, runs, state, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    first.writer.leave();
    clock.advance(30_000);
    expect(runs[0]?.writer.closed).toBe(true);
    runs[0]?.writer.destroy();
    runs[0]?.done();
    await first.done;
    expect(store.rows.size).toBe(0);
    state.draining = true;
    const second = ask("key-2");
    await until(() => runs.length === 2);
    second.writer.leave();
    expect(runs[1]?.writer.closed).toBe(true);
  });

  it("too large to be kept is given once, and its repetition is told so", async () => {
    const { runs, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    finish(runs[0], "x".repeat(2_000));
    await first.done;
    expect(first.writer.text).toHaveLength(2_000);
    const second = ask("key-1");
    await second.done;
    expect(codeOf(second.writer)).toEqual([409, "idempotent_answer_not_kept"]);
    expect(second.writer.headers["x-should-retry"]).toBe("false");
  });

  it("is refused while the database is away, and when the project has used too many keys", async () => {
    const { store, runs, ask } = setUp();
    store.isAway = true;
    const refused = ask("key-1");
    await refused.done;
    expect(codeOf(refused.writer)).toEqual([503, "idempotency_unavailable"]);
    expect(refused.writer.headers).toMatchObject({ "retry-after": "5", "x-ratelimit-limit-requests": "10" });
    store.isAway = false;
    for (const key of ["1", "2", "3"]) void ask(key);
    await until(() => runs.length === 3);
    const tooMany = ask("4");
    await tooMany.done;
    expect(codeOf(tooMany.writer)).toEqual([429, "idempotency_keys_exhausted"]);
  });

  it("whose answer the database did not take is answered from memory and handed over later", async () => {
    const { clock, store, runs, ask } = setUp();
    const first = ask("key-1");
    await until(() => runs.length === 1);
    store.isAway = true;
    finish(runs[0], '{"a":1}');
    await first.done;
    const second = ask("key-1");
    await second.done;
    expect(second.writer.text).toBe('{"a":1}');
    expect([...store.rows.values()][0]?.answer).toBeNull();
    store.isAway = false;
    clock.advance(5_000);
    await until(() => [...store.rows.values()][0]?.answer?.body === '{"a":1}');
  });

  it("waits for another process that answers it, and no longer than any request may take", async () => {
    const { clock, store, runs, ask } = setUp();
    const keySha256 = await sha256OnNode("key-1");
    const other = setUp(store);
    const first = other.ask("key-1");
    await until(() => other.runs.length === 1);
    const second = ask("key-1");
    const third = ask("key-1", {});
    await until(() => clock.pendingTimers > 0);
    finish(other.runs[0], '{"a":1}');
    await first.done;
    for (let turn = 0; turn < 5; turn += 1) {
      clock.advance(500);
      await settled();
      await settled();
    }
    await Promise.all([second.done, third.done]);
    expect([second.writer.text, third.writer.text, runs.length]).toEqual(['{"a":1}', '{"a":1}', 0]);
    const row = store.rows.get(keySha256);
    if (row !== undefined) row.answer = null;
    const late = ask("key-1");
    for (let turn = 0; turn < 130 && !late.writer.ended; turn += 1) {
      await settled();
      clock.advance(500);
    }
    await late.done;
    expect(codeOf(late.writer)).toEqual([504, "total_timeout"]);
  });
});
