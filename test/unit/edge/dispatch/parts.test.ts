import { describe, expect, it } from "vitest";
import type { ServedModel } from "../../../../edge/ports/fleet.ts";
import { costBoundNanoUsd, tokenBounds, writtenOutputTokens } from "../../../../edge/dispatch/outgoing/bounds.ts";
import { LazyTimer } from "../../../../edge/dispatch/relay/lazy-timer.ts";
import { durationText } from "../../../../edge/dispatch/account/rate-limit-headers.ts";
import { errorBodyOf, readRetryAfterSeconds } from "../../../../edge/dispatch/relay/refusal.ts";
import { editedBody } from "../../../../edge/dispatch/outgoing/request-body.ts";
import { WholeTap } from "../../../../edge/dispatch/relay/whole-tap.ts";
import { requestEnvelopeSchema, type InferenceRoute } from "../../../../shared/openai/request-envelope.ts";
import { NO_SCOPE_LIMITS } from "../../../../edge/ports/limits.ts";
import type { Price } from "../../../../edge/ports/ledger.ts";
import type { Principal } from "../../../../edge/ports/principal.ts";
import { principal, servedModel } from "../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const envelopeOf = (text: string) => requestEnvelopeSchema.parse(JSON.parse(text));

const edited = (
  text: string,
  backendModel = "m",
  route: "/v1/chat/completions" | "/v1/embeddings" = "/v1/chat/completions",
) => editedBody(text, { route, envelope: envelopeOf(text), backendModel, injectUsage: true, maxOutput: null });

const bounds = (body: object) =>
  tokenBounds(
    "/v1/chat/completions",
    requestEnvelopeSchema.parse({ model: "m", ...body }),
    "x".repeat(400),
    servedModel,
  );

describe("the body that travels on", () => {
  it("is the caller's own when there is nothing to change, numbers and spaces included", () => {
    const text = '{ "model":"m", "temperature":1.0, "seed":12345678901234567890, "stream":false }';
    expect(edited(text)).toBe(text);
  });

  it("takes a wish for usage in front of what the caller wrote", () => {
    expect(edited(' {"model":"m","stream":true}')).toBe(
      ' {"stream_options":{"include_usage":true},"model":"m","stream":true}',
    );
  });

  it.each([
    ['{"model":"m","stream":true,"stream_options":null}', { include_usage: true }],
    ['{"model":"m","stream":true,"stream_options":{"include_usage":false,"x":1}}', { include_usage: true, x: 1 }],
  ])("changes stream options that are there: %s", (text, want) => {
    const body: { stream_options: unknown } = JSON.parse(edited(text));
    expect(body.stream_options).toEqual(want);
  });

  it("names the model as its backend does, and leaves the rest", () => {
    expect(edited('{"x":1.0,"model":"alias","y":"alias"}', "real")).toBe('{"x":1.0,"model":"real","y":"alias"}');
  });

  it("asks for no usage where there is none to ask for", () => {
    const text = '{"model":"m","input":"x","stream":true}';
    expect(edited(text, "m", "/v1/embeddings")).toBe(text);
  });
});

describe("the longest answer of a model", () => {
  const limited = (text: string): unknown => {
    const edits = { route: "/v1/chat/completions", backendModel: "m", injectUsage: true, maxOutput: 50 } as const;
    return JSON.parse(editedBody(text, { ...edits, envelope: envelopeOf(text) }));
  };

  it("is written in where the caller's limit is higher or missing, and only there", () => {
    expect(limited('{"model":"m"}')).toEqual({ model: "m", max_tokens: 50 });
    expect(limited('{"model":"m","max_tokens":null}')).toEqual({ model: "m", max_tokens: 50 });
    expect(limited('{"model":"m","max_completion_tokens":51}')).toEqual({ model: "m", max_completion_tokens: 50 });
    expect(limited('{"model":"m","max_tokens":9,"max_tokens":60}')).toEqual({ model: "m", max_tokens: 50 });
    expect(limited('{"model":"m","max_tokens":50}')).toEqual({ model: "m", max_tokens: 50 });
    expect(limited('{"model":"m","max_tokens":7}')).toEqual({ model: "m", max_tokens: 7 });
  });
});

describe("what a request may take", () => {
  it("is its own limit for every choice, the newer name first", () => {
    expect(bounds({ max_tokens: 10, n: 3 })).toEqual({
      inputTokensEstimate: 100,
      outputTokensLimit: 30,
      outputTokensBound: 30,
    });
    expect(bounds({ max_completion_tokens: 5 })).toMatchObject({ outputTokensLimit: 5 });
  });

  it("is what the window leaves without a limit, and never more than that with one", () => {
    expect(bounds({})).toMatchObject({ outputTokensLimit: null, outputTokensBound: 3_996 });
    expect(bounds({ max_tokens: 1_000_000 })).toMatchObject({ outputTokensBound: 3_996 });
    // Limits reserve no more than any answer can take, or a wish for the whole window would never fit them.
    expect(bounds({ max_tokens: 1_000_000, n: 2 })).toMatchObject({ outputTokensLimit: 8_192 });
  });

  it("costs at most its bound at full price", () => {
    const price = { promptPer1k: 2, cachedPer1k: 1, completionPer1k: 6 };
    const bound = (
      body: object,
      text: string,
      model: Partial<ServedModel> = {},
      route: InferenceRoute = "/v1/chat/completions",
    ): bigint =>
      costBoundNanoUsd(
        {
          route,
          envelope: requestEnvelopeSchema.parse({ model: "m", ...body }),
          bodyText: text,
          model: { ...servedModel, ...model },
        },
        price,
      );
    const window = servedModel.contextLength ?? 0;
    // A token may be as short as a byte, and a template adds some.
    expect(bound({ max_tokens: 10 }, "x".repeat(400))).toBe(BigInt((400 + 512) * 2 + 10 * 6));
    expect(bound({ max_tokens: 10, n: 2 }, "模".repeat(100))).toBe(BigInt((300 + 512) * 2 + 20 * 6));
    expect(bound({}, "x".repeat(100_000))).toBe(BigInt(window * 2 + window * 6));
    // Whichever replica answers: one may have a longer window, or tell none.
    expect(bound({}, "x".repeat(100_000), { longestContext: 9_000 })).toBe(BigInt(9_000 * 2 + 9_000 * 6));
    expect(bound({}, "", { longestContext: null })).toBe(BigInt(512 * 2 + 4_096 * 6));
    expect(bound({ max_tokens: 900 }, "", { maxOutput: 50 })).toBe(BigInt(512 * 2 + 50 * 6));
    const texts = { input: ["a", "b", "c"], prompt: ["a", "b"] };
    expect(bound(texts, "x".repeat(60), {}, "/v1/embeddings")).toBe(BigInt((60 + 3 * 4) * 2));
    expect(bound({ ...texts, max_tokens: 10 }, "x".repeat(60), {}, "/v1/completions")).toBe(
      BigInt((60 + 2 * 4) * 2 + 20 * 6),
    );
  });
});

describe("a bound where nobody knows one", () => {
  const price = { promptPer1k: 0, cachedPer1k: 0, completionPer1k: 1 };
  const limitless = { ...servedModel, contextLength: null, maxOutput: null };
  const rich: Principal = { ...principal, accountLimits: { ...NO_SCOPE_LIMITS, budgetMonthNanoUsd: "1000000" } };
  const written = (body: object, over: { model?: ServedModel; by?: Principal; price?: Price } = {}) => {
    const envelope = requestEnvelopeSchema.parse({ model: "m", ...body });
    const model = over.model ?? limitless;
    const route = "/v1/chat/completions";
    return writtenOutputTokens({ route, envelope, model, principal: over.by ?? rich }, over.price ?? price);
  };

  it("is what a budget reserved, for each choice, in the text that travels on", () => {
    const text = '{"model":"m","n":2}';
    const envelope = envelopeOf(text);
    const request = { route: "/v1/chat/completions", envelope, bodyText: text, model: limitless } as const;
    const maxOutput = writtenOutputTokens({ ...request, principal: rich }, price);
    const sent = editedBody(text, { route: request.route, envelope, backendModel: "m", injectUsage: true, maxOutput });
    const reserved = costBoundNanoUsd(request, price);
    expect(JSON.parse(sent)).toEqual({ model: "m", n: 2, max_tokens: Number(reserved / 2n) });
    // And what travels on reserves no more than what came.
    expect(costBoundNanoUsd({ ...request, envelope: envelopeOf(sent) }, price)).toBe(reserved);
  });

  it("is written where one of several machines tells no window", () => {
    expect(written({}, { model: { ...limitless, contextLength: 1_024, longestContext: null } })).toBe(4_096);
    expect(written({}, { model: { ...limitless, contextLength: 1_024, longestContext: 2_048 } })).toBeNull();
  });

  it.each(["budgetNanoUsd", "budgetDayNanoUsd", "budgetMonthNanoUsd"] as const)("is written under %s", (name) => {
    const limits = { ...NO_SCOPE_LIMITS, [name]: "5" };
    for (const scope of ["keyLimits", "projectLimits", "accountLimits"]) {
      expect(written({}, { by: { ...principal, [scope]: limits } })).toBe(4_096);
    }
    expect(written({ max_tokens: null }, { by: { ...principal, keyLimits: limits } })).toBe(4_096);
  });

  it("is not written where one is known, where nothing is paid, or where no budget pays", () => {
    expect(written({ max_tokens: 100_000 })).toBeNull();
    expect(written({ max_completion_tokens: 7 })).toBeNull();
    expect(written({}, { model: servedModel })).toBeNull();
    expect(written({}, { model: { ...limitless, maxOutput: 50 } })).toBe(50);
    expect(written({}, { price: { ...price, completionPer1k: 0 } })).toBeNull();
    expect(written({}, { by: principal })).toBeNull();
  });
});

describe("a backend's Retry-After", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  it.each([
    ["7", 7],
    ["0", 1],
    ["1.2", 2],
    ["999999", 3_600],
    ["Thu, 01 Jan 2026 00:00:09 GMT", 9],
    ["Thu, 01 Jan 2020 00:00:00 GMT", 1],
    ["soon", null],
    [undefined, null],
  ])("'%s' means %s seconds", (header, want) => {
    expect(readRetryAfterSeconds(header, now)).toBe(want);
  });
});

describe("a backend's error object", () => {
  it("is brought to four members, a number as code replaced by a word of ours", () => {
    expect(errorBodyOf({ error: { message: "bad", type: "BadRequestError", param: null, code: 400 } }, 400)).toEqual({
      error: { message: "bad", type: "BadRequestError", param: null, code: "invalid_value" },
    });
  });

  it.each([[{ detail: "x" }], [{ error: "text" }], ["html"], [undefined]])("is not read into %j", (value) => {
    expect(errorBodyOf(value, 500)).toBeNull();
  });
});

describe("the tap of a whole answer", () => {
  const encoder = new TextEncoder();
  it("reads usage and receipt", () => {
    const tap = new WholeTap();
    for (const byte of encoder.encode('{"steerage":{"steering":"é"},"usage":{"prompt_tokens":3}}'))
      tap.push(new Uint8Array([byte]));
    expect(tap.read()).toEqual({ usage: { promptTokens: 3, cachedTokens: 0, completionTokens: 0 }, receipt: "é" });
  });

  it("finds usage at the end of an answer too long to keep", () => {
    const tap = new WholeTap();
    for (let block = 0; block < 40; block++) tap.push(encoder.encode(`"${"x".repeat(64 * 1_024)}",`));
    tap.push(
      encoder.encode('"usage": {"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":1},"total_tokens":3}}'),
    );
    expect(tap.read().usage).toEqual({ promptTokens: 3, cachedTokens: 1, completionTokens: 0 });
  });

  it("believes no usage that is none", () => {
    const tap = new WholeTap();
    tap.push(encoder.encode('{"usage":{"prompt_tokens":-1}}'));
    expect(tap.read().usage).toBeNull();
  });
});

describe("a lazy timer", () => {
  it("fires once at the last deadline, however often it was moved", () => {
    const clock = new ManualClock();
    let fired = 0;
    const timer = new LazyTimer(clock, () => fired++);
    timer.set(100);
    for (let step = 0; step < 10; step++) {
      clock.advance(50);
      timer.set(100);
    }
    clock.advance(99);
    expect(fired).toBe(0);
    clock.advance(1);
    expect(fired).toBe(1);
    clock.advance(1_000);
    expect(fired).toBe(1);
  });

  it("may be moved earlier, stopped and thrown away", () => {
    const clock = new ManualClock();
    let fired = 0;
    const timer = new LazyTimer(clock, () => fired++);
    timer.set(1_000);
    timer.set(10);
    clock.advance(10);
    expect(fired).toBe(1);
    timer.set(10);
    timer.stop();
    clock.advance(20);
    timer.set(10);
    timer.dispose();
    clock.advance(20);
    expect(fired).toBe(1);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("a time in a rate-limit header", () => {
  it.each([
    [20, "20ms"],
    [1_500, "1.5s"],
    [360_000, "6m0s"],
  ])("%i ms is %s", (ms, want) => {
    expect(durationText(ms)).toBe(want);
  });
});
