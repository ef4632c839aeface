import { describe, expect, it } from "vitest";
import { WatchedRequest, WatchingSink } from "../../../../backend/engine/monitoring/watched-request.ts";
import { WatchList } from "../../../../backend/engine/monitoring/watch-list.ts";
import { NOTHING_COMPUTED, type TaskSink } from "../../../../backend/engine/loop/generation-task.ts";
import type { SensedRows } from "../../../../backend/native/binding.ts";
import type { WatchListDefinition } from "../../../../backend/ports/watch-lists.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const OWN_PLANS = 1;
const PROMPT = Int32Array.from([0, 1, 2]);

/** Feature 7 at these positions, of the plan at a place behind the caller's own. */
function sensed(place: number, positions: readonly number[], value = 5): SensedRows {
  return {
    jobId: 1,
    planIndex: place,
    positions: Int32Array.from(positions),
    tokens: Int32Array.from(positions),
    counts: Int32Array.from(positions, () => 1),
    indices: Int32Array.from(positions, () => 7),
    values: Float32Array.from(positions, () => value),
  };
}

function watched({ text = true, reach = 1, maxEvents = 10 }: { text?: boolean; reach?: number; maxEvents?: number }) {
  const clock = new ManualClock(1_000);
  const definition: WatchListDefinition = {
    id: "l",
    sae_id: "s",
    features: [7],
    threshold: 1,
    context_tokens: reach,
    read_point: "post_steering",
  };
  const list = new WatchList(definition, { history: 100 }, clock.nowMs());
  const heard: string[] = [];
  const sink: TaskSink = {
    started: (cached) => heard.push(`started ${cached}`),
    token: ({ token }) => heard.push(`token ${token}`),
    promptChances: () => heard.push("chances"),
    sensed: ({ planIndex }) => heard.push(`sensed ${planIndex}`),
    finished: ({ reason }) => heard.push(reason),
  };
  const request = new WatchedRequest({
    label: { requestId: "req", attempt: 2 },
    nowMs: () => clock.nowMs(),
    maxEvents,
    textOf: text ? (tokens) => tokens.join("") : null,
  });
  const begin = () => new WatchingSink(request, { sink, tokens: PROMPT, ownPlans: OWN_PLANS, lists: [list] });
  const token = (id: number) => ({ token: id, bytes: new Uint8Array(), logprobs: null });
  return { clock, list, heard, begin, token, told: () => list.history.after(0) };
}

describe("a task that is watched", () => {
  it("tells its own sink everything but the rows of watch lists", () => {
    const { begin, heard, token } = watched({});
    const task = begin();
    task.started(1);
    task.promptChances([]);
    task.token(token(9));
    task.sensed(sensed(0, [1]));
    task.sensed(sensed(1, [1]));
    task.finished(NOTHING_COMPUTED);
    expect(heard).toEqual(["started 1", "chances", "token 9", "sensed 0", "cancelled"]);
  });

  it("tells an event once the tokens to its right are there, or at the end", () => {
    const { begin, clock, told, token } = watched({});
    const task = begin();
    task.sensed(sensed(1, [0, 2]));
    expect(told().map(({ position, context }) => [position, context])).toEqual([
      [0, { before: "", token: "0", after: "1" }],
    ]);
    clock.advance(500);
    task.token(token(3));
    expect(told().at(-1)).toEqual({
      sequence: 2,
      at_ms: 1_000,
      request_id: "req",
      attempt: 2,
      position: 2,
      part: "prompt",
      feature: 7,
      value: 5,
      context: { before: "1", token: "2", after: "3" },
    });
    task.sensed(sensed(1, [3]));
    expect(told()).toHaveLength(2);
    task.finished(NOTHING_COMPUTED);
    expect(told().at(-1)).toMatchObject({ part: "completion", context: { before: "2", token: "3", after: "" } });
  });

  it("carries no text, and waits for none, where that is switched off", () => {
    const { begin, told } = watched({ text: false, reach: 64 });
    begin().sensed(sensed(1, [2]));
    expect(told()).toHaveLength(1);
    expect(told()[0]).not.toHaveProperty("context");
  });

  it("shares its request's number of events among its choices, and counts the rest", () => {
    const { begin, list, told } = watched({ text: false, maxEvents: 3 });
    begin().sensed(sensed(1, [0, 1]));
    begin().sensed(sensed(1, [0, 1, 2]));
    expect([told().length, list.suppressed]).toEqual([3, 2]);
    expect(list.windows.totals(60, 1_000)).toMatchObject({ rows: 5, features: [{ over_threshold: 5 }] });
  });

  it("counts as one request, however many choices begin", () => {
    const { begin, list } = watched({});
    begin().started(0);
    begin().started(2);
    expect(list.windows.totals(60, 1_000).requests).toBe(1);
  });

  it("is no event at the threshold itself", () => {
    const { begin, told } = watched({ text: false });
    begin().sensed(sensed(1, [0], 1));
    expect(told()).toEqual([]);
  });
});
