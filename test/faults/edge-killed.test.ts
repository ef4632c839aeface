import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { answerOfFive, chunkText, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { Stack, until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }], stream: true };
const rowSchema = z.object({ request_id: z.string(), outcome: z.string(), completion_tokens: z.int() });
const CALLS = 50;
const ANSWERED = 20;

describe("an edge that is killed in the middle of many calls", () => {
  let machine: ScriptedEndpoint;
  let stack: Stack;
  beforeAll(async () => {
    machine = await ScriptedEndpoint.start();
    stack = await Stack.start({
      host: null,
      edge: { endpoints: [{ id: "other", url: machine.url, models: ["m"], slots: CALLS }] },
    });
  });
  afterAll(async () => {
    await stack.stop();
    await machine.stop();
  });

  const rows = async (): Promise<z.infer<typeof rowSchema>[]> =>
    (await stack.cli("usage", "export", "--format", "jsonl"))
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => rowSchema.parse(JSON.parse(line)));

  it("has one row for every answer that reached its client to the end, also after it was killed again (C099)", async () => {
    machine.script = (request, response) => {
      if (machine.seen.length <= ANSWERED) answerOfFive(request, response);
      else response.writeHead(200, { "content-type": "text/event-stream" }).write(chunkText({ content: "word " }));
    };
    const whole: string[] = [];
    const calls = Array.from({ length: CALLS }, async () => {
      const answer = await stack.request("/chat/completions", question);
      if ((await answer.text()).endsWith("data: [DONE]\n\n")) whole.push(answer.headers.get("x-request-id") ?? "");
    });
    const settled = Promise.allSettled(calls);
    await until(
      "all have arrived and some are answered",
      () => whole.length === ANSWERED && machine.seen.length === CALLS,
    );
    // What is promised: nothing is lost that was written before the last turn of the event loop.
    await stack.request("/models");
    await stack.end("edge", "SIGKILL");
    await settled;

    const known: string[][] = [];
    for (let start = 0; start < 2; start++) {
      stack.startEdge();
      await stack.untilReady();
      const all = await rows();
      expect(new Set(all.map(({ request_id }) => request_id)).size).toBe(all.length);
      const completed = all.filter(({ outcome }) => outcome === "completed");
      expect(completed.map(({ request_id }) => request_id).toSorted()).toEqual(whole.toSorted());
      expect(new Set(completed.map(({ completion_tokens }) => completion_tokens))).toEqual(new Set([5]));
      known.push(all.map(({ request_id }) => request_id).toSorted());
      await stack.end("edge", "SIGKILL");
    }
    // The journal was read twice, and says the same.
    expect(known[1]).toEqual(known[0]);
    expect(known[0]).toHaveLength(CALLS);
  });
});
