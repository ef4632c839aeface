import { describe, expect, it, vi } from "vitest";
import type { AppliedChat } from "../../../../backend/native/binding.ts";
import { conversationKind, PlainRenderings } from "../../../../backend/engine/openai/plain-renderings.ts";

const applied = (over: Partial<AppliedChat> = {}): AppliedChat => ({
  prompt: "<user>hello",
  grammar: "",
  grammarLazy: false,
  grammarTriggers: "",
  preservedTokens: [],
  additionalStops: [],
  parser: "analysed",
  supportsThinking: false,
  ...over,
});
const PLAIN = applied({ parser: "plain" });

/** What came of two renderings of one kind, and how often the template was analysed. */
function twice(first: AppliedChat | Error, plainly: AppliedChat | Error) {
  const renderings = new PlainRenderings();
  const full = vi.fn<() => AppliedChat | Error>(() => first);
  const answers = [1, 2].map(() => renderings.render("kind", full, () => plainly));
  return { answers, analyses: full.mock.calls.length };
}

describe("a conversation is rendered plainly", () => {
  it("from the second time on, where that gave the same prompt the first time", () => {
    const { answers, analyses } = twice(applied(), PLAIN);
    expect(answers).toEqual([applied(), PLAIN]);
    expect(analyses).toBe(1);
  });

  it.each([
    ["gives another prompt", applied(), applied({ prompt: "hello" })],
    ["fails", applied(), new Error("no")],
    ["would lose reasoning", applied({ supportsThinking: true }), PLAIN],
    ["would lose stops", applied({ additionalStops: ["<end>"] }), PLAIN],
    ["would lose a grammar", applied({ grammar: "root ::= x" }), PLAIN],
  ])("never where that %s", (_, full, plainly) => {
    const { answers, analyses } = twice(full, plainly);
    expect(answers).toEqual([full, full]);
    expect(analyses).toBe(2);
  });

  it("only in the kind that was compared, and not because of a failure", () => {
    const renderings = new PlainRenderings();
    const failure = new Error("no");
    expect(
      renderings.render(
        "a",
        () => failure,
        () => PLAIN,
      ),
    ).toBe(failure);
    expect(renderings.render("a", applied, () => PLAIN)).toEqual(applied());
    expect(renderings.render("a", applied, () => PLAIN)).toBe(PLAIN);
    expect(renderings.render("b", applied, () => PLAIN)).toEqual(applied());
  });

  it("in at most 64 kinds, so that callers cannot fill memory with them", () => {
    const renderings = new PlainRenderings();
    const analyses = vi.fn<() => AppliedChat>(() => applied());
    for (let round = 0; round < 2; round++) {
      for (let kind = 0; kind < 100; kind++) renderings.render(String(kind), analyses, () => PLAIN);
    }
    expect(analyses).toHaveBeenCalledTimes(100 + 36);
  });
});

describe("the kind of a conversation", () => {
  const user = { role: "user", content: "one" };
  it("is the roles with their members and the arguments' names, not what they say or how often", () => {
    expect(conversationKind([user, { role: "user", content: "two" }], { a: 1 })).toBe(
      conversationKind([user], { a: 2 }),
    );
    const others = [
      conversationKind([user], null),
      conversationKind([user], { a: 1 }),
      conversationKind([{ ...user, name: "Ann" }], null),
      conversationKind([user, { role: "system", content: "" }], null),
      conversationKind([{ role: "system", content: "" }, user], null),
    ];
    expect(new Set(others).size).toBe(others.length);
  });
});
