import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { StreamTap } from "../../../../../edge/dispatch/relay/stream-tap.ts";
import { delta, finish, usageChunk } from "../../../../support/scripted-exchange.ts";

const encoder = new TextEncoder();
const frame = (value: unknown): string => `data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`;

function run(text: string, options: { clientWantsUsage?: boolean; borders?: readonly number[] } = {}) {
  const tap = new StreamTap({ clientWantsUsage: options.clientWantsUsage ?? false });
  const bytes = encoder.encode(text);
  let out = "";
  let from = 0;
  for (const border of [...new Set(options.borders ?? [])].toSorted((a, b) => a - b)) {
    out += tap.push(bytes.subarray(from, border));
    from = border;
  }
  out += tap.push(bytes.subarray(from)) + tap.close();
  return { tap, out };
}

describe("the tap of a stream", () => {
  it("passes on the same events whatever the chunk borders, characters of several bytes included", () => {
    const values = [
      delta("é日😀"),
      delta('a "usage" of words'),
      { ...delta("x"), note: "\u2028" },
      finish("stop"),
      usageChunk(3, 2),
    ];
    const eol = fc.constantFrom("\n", "\r\n", "\r");
    fc.assert(
      fc.property(eol, fc.boolean(), fc.boolean(), fc.array(fc.nat(1_500)), (end, bom, comments, borders) => {
        const source =
          (bom ? "\ufeff" : "") +
          [...values, "[DONE]"]
            .map((value) => (comments ? `: WAITING${end}${end}` : "") + frame(value).replaceAll("\n", end))
            .join("");
        const length = encoder.encode(source).length;
        const { tap, out } = run(source, { borders: borders.filter((border) => border < length) });
        expect(out).toBe(values.slice(0, -1).map(frame).join(""));
        expect(tap.complete).toBe(true);
        expect(tap.usage).toEqual({ promptTokens: 3, completionTokens: 2, cachedTokens: 0 });
        expect(tap.tokenEvents).toBe(3);
      }),
    );
  });

  it("swallows empty data, pings with empty data, and comments sent as data", () => {
    const { out } = run(`data:\n\nevent: ping\ndata:\n\ndata: : ping\n\nid: 7\n${frame(delta("a"))}: WAITING\n\n`);
    expect(out).toBe(frame(delta("a")));
  });

  it("joins a value spread over several data lines", () => {
    const { out } = run('data: {"choices":\ndata: []}\n\n');
    expect(JSON.parse(out.replaceAll("data: ", "").replaceAll("\n", ""))).toEqual({ choices: [] });
  });

  it("strips a usage chunk only if it carries nothing else", () => {
    const steerage = { ...usageChunk(1, 1), steerage: { steering: "none" } };
    const onContent = { ...delta("a"), usage: usageChunk(1, 1)["usage"] };
    const { out, tap } = run([usageChunk(1, 1), steerage, onContent].map(frame).join(""));
    expect(
      out
        .split("\n\n")
        .slice(0, -1)
        .map((line): unknown => JSON.parse(line.slice(6))),
    ).toEqual([{ ...delta(""), choices: [], steerage: { steering: "none" } }, delta("a")]);
    expect(tap.receipt).toBe("none");
    expect(tap.usage).toMatchObject({ promptTokens: 1 });
  });

  it("leaves everything in place for a caller who wants usage", () => {
    const source = [{ ...delta("a"), usage: null }, usageChunk(1, 1)].map(frame).join("");
    expect(run(source, { clientWantsUsage: true }).out).toBe(source);
  });

  it("reads errors however they are told, and nothing after them", () => {
    const error = { error: { message: "m", type: "t", param: null, code: "c" } };
    for (const source of [frame(error), `event: error\n${frame(error)}`]) {
      const { tap, out } = run(frame(delta("a")) + source + frame(delta("b")));
      expect(out).toBe(frame(delta("a")));
      expect(tap.end).toEqual({ kind: "error", body: error });
    }
    expect(run(frame({ error: "text" })).tap.end).toEqual({ kind: "error", body: null });
    expect(run(frame({ ...delta("a"), error: null })).tap.end).toBeNull();
  });

  it("takes a finish reason outside OpenAI's list for a failure", () => {
    const { tap, out } = run(frame(delta("a")) + frame(finish("abort")) + frame("[DONE]"));
    expect(tap.end).toEqual({ kind: "error", body: null });
    expect(out).toBe(frame(delta("a")));
  });

  it("counts only chunks with text as tokens", () => {
    const role = {
      ...delta(""),
      choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }],
    };
    const tool = {
      ...delta(""),
      choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: "{" } }] } }],
    };
    expect(run([role, delta("a"), tool, finish("stop")].map(frame).join("")).tap.tokenEvents).toBe(2);
  });

  it("does not take text of the model for members of a chunk", () => {
    const talkative = delta('{"error":"x","usage":{"prompt_tokens":9},"finish_reason":"abort"}');
    const { tap, out } = run(frame(talkative));
    expect(out).toBe(frame(talkative));
    expect([tap.end, tap.usage]).toEqual([null, null]);
  });

  it("takes an end mark without its blank line for one, and no other event", () => {
    expect(run(`${frame(finish("stop"))}data: [DONE]`).tap.complete).toBe(true);
    const { out, tap } = run(`${frame(finish("stop"))}data: ${JSON.stringify(delta("a"))}`);
    expect(out).toBe(frame(finish("stop")));
    expect(tap.end).toBeNull();
  });

  it("is not complete when an event was cut, nor without finish reason or end mark", () => {
    expect(run(frame(finish("stop")) + "data: [DON").tap.complete).toBe(false);
    expect(run(frame(finish("stop"))).tap.complete).toBe(false);
    expect(run(frame("[DONE]")).tap.complete).toBe(false);
  });
});
