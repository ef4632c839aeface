import { describe, expect, it } from "vitest";
import { EmbeddingRuns } from "../../../../backend/engine/embedding/embedding-runs.ts";
import { RequestAccount } from "../../../../backend/engine/events/request-account.ts";
import { RankingAccount } from "../../../../backend/engine/saes/ranking-account.ts";
import type { EngineEnded } from "../../../../backend/ports/engine-events.ts";

const label = { requestId: "req_1", attempt: 2 };

function setUp(of: typeof label | null = label) {
  const told: EngineEnded[] = [];
  const runs = new EmbeddingRuns(
    () => undefined,
    () => undefined,
    null,
  );
  const account = new RankingAccount(new RequestAccount(of, (event) => told.push(event)), runs);
  return { told, runs, account };
}

describe("the account of a ranking", () => {
  it("stands among what runs while it computes, and tells at its end what was computed until then", () => {
    const { told, runs, account } = setUp();
    account.begin(30);
    account.progress(12);
    expect(runs.running()).toMatchObject([{ label, computedPromptTokens: 12, computedCompletionTokens: 0 }]);
    account.end("cancelled");
    expect(runs.running()).toEqual([]);
    expect(told).toEqual([
      {
        type: "ended",
        request_id: "req_1",
        attempt: 2,
        computed_prompt: 12,
        cached_prompt: 0,
        computed_completion: 0,
        outcome: "cancelled",
      },
    ]);
  });

  it("is zeros for one that was refused before anything was computed", () => {
    const { told, runs, account } = setUp();
    account.end("failed");
    expect(told).toMatchObject([{ computed_prompt: 0, outcome: "failed" }]);
    expect(runs.running()).toEqual([]);
  });

  it("is told to nobody where no host named the request", () => {
    const { told, account } = setUp(null);
    account.begin(3);
    account.progress(3);
    account.end("completed");
    expect(told).toEqual([]);
  });
});
