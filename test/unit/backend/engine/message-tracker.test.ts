import { describe, expect, it } from "vitest";
import { MessageTracker, type MessageDelta } from "../../../../backend/engine/tools/message-tracker.ts";

/** A parser that knows the answer to every text it is shown; "throws" is one that does not fit. */
function tracker(readings: Readonly<Record<string, object>>) {
  let ids = 0;
  return new MessageTracker(
    (text) => {
      const reading = readings[text];
      if (reading === undefined) throw new Error("does not fit");
      return JSON.stringify(reading);
    },
    () => `call_${(ids += 1)}`,
  );
}
const call = (name: string, args: unknown, id?: string) => ({
  id,
  type: "function",
  function: { name, arguments: args },
});
const nothing: MessageDelta = { text: "", reasoning: "", toolCalls: [] };

describe("the message of an answer", () => {
  it("grows by what is new of content, reasoning and calls", () => {
    const message = tracker({
      a: { content: "", reasoning_content: "hm" },
      ab: { content: "Sure", reasoning_content: "hm, so" },
      abc: { content: "Sure. ", reasoning_content: "hm, so", tool_calls: [call("f", '{"a"')] },
      abcd: {
        content: "Sure. ",
        reasoning_content: "hm, so",
        tool_calls: [call("f", '{"a": 1}'), call("g", "{}", "own_id")],
      },
    });
    expect(message.update("a")).toEqual({ ...nothing, reasoning: "hm" });
    expect(message.update("ab")).toEqual({ ...nothing, text: "Sure", reasoning: ", so" });
    expect(message.update("abc")).toEqual({
      ...nothing,
      text: ". ",
      toolCalls: [{ index: 0, id: "call_1", name: "f", arguments: '{"a"' }],
    });
    expect(message.end("abcd", false).toolCalls).toEqual([
      { index: 0, arguments: ": 1}" },
      { index: 1, id: "own_id", name: "g", arguments: "{}" },
    ]);
    expect(message.callCount).toBe(2);
  });

  it("tells both calls when they come in one piece, each with its own index and arguments (C049)", () => {
    const message = tracker({ x: { content: "", tool_calls: [call("f", '{"a":1}'), call("f", '{"a":2}')] } });
    expect(message.update("x").toolCalls.map(({ index, arguments: text }) => [index, JSON.parse(text)])).toEqual([
      [0, { a: 1 }],
      [1, { a: 2 }],
    ]);
  });

  it.each([
    [{ a: 1 }, '{"a":1}'],
    [null, "{}"],
    ["", "{}"],
  ])("tells arguments that are %j as text (C050)", (given, told) => {
    const message = tracker({ x: { content: null, tool_calls: [call("f", given)] } });
    expect(message.end("x", false).toolCalls[0]?.arguments).toBe(told);
  });

  it("leaves the arguments of a cut call as they are", () => {
    const message = tracker({ x: { content: "", tool_calls: [call("f", '{"a": "ha')] } });
    expect(message.end("x", true).toolCalls[0]?.arguments).toBe('{"a": "ha');
  });

  it("is plain content, word for word, where the end does not fit the format", () => {
    const message = tracker({ "Sure <tool": { content: "Sure " } });
    expect(message.update("Sure <tool").text).toBe("Sure ");
    expect(message.end("Sure <tool_call> nonsense", false)).toEqual({ ...nothing, text: "<tool_call> nonsense" });
    expect(tracker({}).end("whole", false).text).toBe("whole");
    const broken = tracker({ "<call>": { content: "", tool_calls: [call("f", "{oops")] } });
    expect(broken.end("<call>", false)).toEqual({ ...nothing, text: "<call>" });
  });

  it("is not read anew until there is something new, and long ones not for every token", () => {
    const read: number[] = [];
    const message = new MessageTracker(
      (text) => {
        read.push(text.length);
        return JSON.stringify({ content: text });
      },
      () => "",
    );
    let told = "";
    for (const length of [1, 1, 2, 5_000, 5_003, 5_006, 5_009]) told += message.update("x".repeat(length)).text;
    expect(read).toEqual([1, 2, 5_000, 5_006]);
    expect(told + message.end("x".repeat(5_009), false).text).toBe("x".repeat(5_009));
  });

  it("takes nothing back when a later reading contradicts an earlier one", () => {
    const message = tracker({ a: { content: "abc" }, ab: { content: "x" }, "ab c": { content: "abcd" } });
    expect(message.update("a").text).toBe("abc");
    expect(message.update("ab")).toEqual(nothing);
    expect(message.update("ab ")).toEqual(nothing);
    expect(message.update("ab c").text).toBe("d");
  });
});
