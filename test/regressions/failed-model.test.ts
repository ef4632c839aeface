// Root cause: a replica that had failed looked to admission like one that may be there any moment, so that each request
// for it waited ten seconds to hear that there is no machine, and not why.
import { describe, expect, it } from "vitest";
import { failureClass } from "../../edge/fleet/failure-class.ts";
import { InProcessFleet } from "../../edge/fleet/fleet.ts";
import { errorOf, manualBench, replica } from "../support/dispatch-bench.ts";
import { servedModel, silentLogger } from "../support/dispatch-fakes.ts";
import { hostReport } from "../support/fleet-report.ts";
import { ManualClock } from "../support/manual-clock.ts";

describe("a model whose replicas have all failed (C073)", () => {
  it("is answered 503 at once, with the class of the reason and a wait, as a shed row", async () => {
    const { ask, ledger, limits } = await manualBench({ replicas: [replica("gpu/r1", { ready: false })] });
    const { writer, done } = ask({}, { model: { ...servedModel, readyReplicas: 0, failure: "it is broken" } });
    await done;
    expect(writer.status).toBe(503);
    expect(errorOf(writer)).toMatchObject({
      code: "no_replica_available",
      message: "No replica of 'm' works: it is broken.",
    });
    expect(Number(writer.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect(ledger.shedRequests).toHaveLength(1);
    expect(limits.settled).toMatchObject([{ totalTokens: 0 }]);
  });

  it("has failed only while each of them has, by a host that can be reached", async () => {
    const fleet = new InProcessFleet({
      clock: new ManualClock(),
      logger: silentLogger,
      coordinator: { update: () => Promise.resolve() },
      settings: {
        edge: "edge-1",
        reportEveryMs: 1_000,
        unreachableAfterMs: 10_000,
        lostAfterMs: 300_000,
        pushEveryMs: 100,
        endpoints: [],
        models: {},
      },
    });
    const failure = async () => (await fleet.resolve("m"))?.failure;
    const failed = { state: "failed", reason: "the file /models/secret.gguf is cut short" } as const;
    await fleet.accept(hostReport({}, failed));
    expect(await failure()).toBe("its file cannot be loaded");
    await fleet.accept(hostReport({ host: "other" }, { state: "starting" }));
    expect(await failure()).toBeNull();
    await fleet.accept(hostReport({ host: "other", seq: 2 }, { state: "failed", reason: null }));
    expect(await failure()).toBe("its file cannot be loaded");
    await fleet.unreachable("gpu", 1);
    expect(await failure()).toBeNull();
  });

  it.each([
    ["out of memory while /x/y was loaded", "there is not enough memory for it"],
    ["did not become ready in time", "its engine does not answer"],
    ["stopped answering", "its engine does not answer"],
    ["the SAE demo-l1 in /x does not fit", "an SAE of it cannot be used"],
    ["was ended by SIGSEGV", "its engine ends again and again"],
  ])("says of %j that %s", (reason, said) => {
    expect(failureClass(reason)).toBe(said);
  });
});
