import { describe, expect, it } from "vitest";
import { tokenBounds } from "../../../../edge/dispatch/outgoing/bounds.ts";
import { headerText } from "../../../../edge/dispatch/outgoing/header-text.ts";
import { editedBody } from "../../../../edge/dispatch/outgoing/request-body.ts";
import { readUsage } from "../../../../edge/dispatch/relay/usage-reader.ts";
import { requestEnvelopeSchema } from "../../../../shared/openai/request-envelope.ts";
import { errorOf, manualBench as bench, replica } from "../../../support/dispatch-bench.ts";
import { inferenceRequest, RecordingWriter, servedModel } from "../../../support/dispatch-fakes.ts";
import { delta, finish, usageChunk } from "../../../support/scripted-exchange.ts";

const readBack = (text: string, backendModel = "m"): unknown =>
  JSON.parse(
    editedBody(text, {
      route: "/v1/chat/completions",
      envelope: requestEnvelopeSchema.parse(JSON.parse(text)),
      backendModel,
      injectUsage: true,
      maxOutput: null,
    }),
  );

describe("members that a request names twice", () => {
  it("are changed where they count: the last model is the backend's", () => {
    expect(readBack('{"model":"x","a":1,"model":"alias"}', "real")).toEqual({ model: "real", a: 1 });
    expect(readBack('{"\\u006dodel":"alias"}', "real")).toEqual({ model: "real" });
  });

  it.each([
    '{"model":"m","stream":true,"stream_options":{"include_usage":true},"stream_options":{}}',
    '{"model":"m","stream":true,"stream_options":{"include_usage":true},"stream_options":null}',
    '{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_usage":false}}',
  ])("hide no usage: %s", (text) => {
    expect(readBack(text)).toMatchObject({ stream_options: { include_usage: true } });
  });
});

describe("a request of several prompts", () => {
  const boundOf = (prompt: unknown): number =>
    tokenBounds(
      "/v1/completions",
      requestEnvelopeSchema.parse({ model: "m", prompt, max_tokens: 10, n: 2 }),
      "x".repeat(40),
      servedModel,
    ).outputTokensBound;

  it("reserves an answer for each of them, and one for a list of token ids", () => {
    expect(boundOf(["a", "b", "c"])).toBe(60);
    expect(boundOf([[1], [2]])).toBe(40);
    expect(boundOf([1, 2, 3])).toBe(20);
    expect(boundOf("a")).toBe(20);
  });
});

describe("what a caller or a machine names", () => {
  it("stands percent-encoded in a header, whatever its script", async () => {
    const { ask, exchange } = await bench({ replicas: [replica("other/模型 1")] });
    const { writer, done } = ask({ stream: true });
    (await exchange(0)).stream().data(delta("a"), finish("stop"), usageChunk(3, 1), "[DONE]").end();
    await done;
    expect(writer.headers["x-steerage-route"]).toBe("other/%E6%A8%A1%E5%9E%8B%201;attempts=1");
    expect(headerText("a\ud800\r\nb")).toBe("a%EF%BF%BD%0D%0Ab");
  });

  it("may be nested too deeply to be looked at, and is answered all the same", async () => {
    const { dispatcher, clock, limits, inFlight } = await bench({ replicas: [replica("gpu/r1")] });
    const request = inferenceRequest({}, { receivedAtMs: clock.nowMs() });
    const writer = new RecordingWriter();
    await dispatcher.run({ ...request, envelope: { ...request.envelope, tools: nested(200_000) } }, writer);
    expect(writer.status).toBe(500);
    expect(errorOf(writer)).toMatchObject({ code: "internal_error" });
    expect(limits.settled).toHaveLength(1);
    expect(await inFlight()).toBe(0);
  });

  it("is no usage when no request could have used so much", () => {
    expect(readUsage({ prompt_tokens: 5, completion_tokens: 9_007_199_254_740_991 })).toBeNull();
    expect(readUsage({ prompt_tokens: 5, completion_tokens: 7 })).toMatchObject({ completionTokens: 7 });
  });
});

function nested(depth: number): unknown {
  let value: unknown = [];
  for (let level = 0; level < depth; level++) value = [value];
  return value;
}
