import { describe, expect, it } from "vitest";
import { callGrammar, toolTurnsAsText, withToolsTold } from "../../../../backend/engine/tools/fallback-format.ts";
import { ScriptedModel } from "../../../support/scripted-native.ts";

const model = new ScriptedModel();
const tool = (name: string, parameters: Record<string, unknown> | null = null) => ({
  type: "function" as const,
  function: { name, parameters },
});
const use = (names: readonly string[], parallel: boolean | null = null) => ({
  tools: names.map((name) => tool(name)),
  choice: "required" as const,
  parallel,
});

describe("the fallback format", () => {
  it("writes calls and results of earlier turns as text, results of parallel calls in one turn", () => {
    const calls = ["1", "2"].map((id) => ({
      id,
      type: "function" as const,
      function: { name: "f", arguments: id === "1" ? '{"a":1}' : "" },
    }));
    const turns = toolTurnsAsText([
      { role: "user", content: "x" },
      { role: "assistant", content: "Let me see.", tool_calls: calls },
      { role: "tool", content: "one", tool_call_id: "1" },
      { role: "tool", content: "two", tool_call_id: "2" },
      { role: "user", content: "and?" },
    ]);
    expect(turns).toEqual([
      { role: "user", content: "x" },
      {
        role: "assistant",
        content:
          'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>\n' +
          '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
      },
      {
        role: "user",
        content: "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>",
      },
      { role: "user", content: "and?" },
    ]);
  });

  it("tells the tools in the system message, the caller's own first", () => {
    const [first, second] = withToolsTold(
      [
        { role: "system", content: "Be brief." },
        { role: "user", content: "x" },
      ],
      use(["f"]),
    );
    expect(first?.content).toMatch(/^Be brief\.\n\n.*"name":"f"/su);
    expect(second).toEqual({ role: "user", content: "x" });
    expect(withToolsTold([{ role: "user", content: "x" }], use(["f"]))[0]?.role).toBe("system");
  });

  it("has a grammar that begins with a call, and allows more only when asked", () => {
    expect(callGrammar(use(["f"]), model)).toMatch(
      /^root ::= call\ncall ::= "<tool_call>\\n" call-body "\\n<\/tool_call>"\n/u,
    );
    expect(callGrammar(use(["f", "g"], true), model)).toMatch(/^root ::= call \("\\n" call\)\*\n/u);
  });

  it("keeps references inside a tool's schema", () => {
    const parameters = { $defs: { n: { type: "number" } }, properties: { a: { $ref: "#/$defs/n" } } };
    const grammar = callGrammar({ tools: [tool("f", parameters)], choice: "auto", parallel: null }, model);
    expect(grammar).toContain('"$ref":"#/$defs/tool0/$defs/n"');
  });
});
