import { expect, it } from "vitest";
import { Reservations } from "../../../../../edge/dispatch/account/reservations.ts";
import { RecordingLimits, silentLogger } from "../../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

const held = { requestId: "r1", account: "acme", reservationId: "r-r1" };
const own = { counts: { promptTokens: 3, cachedTokens: 0, completionTokens: 2 }, costNanoUsd: 9n };
const exact = { promptTokens: 3, cachedTokens: 0, completionTokens: 5 };

function start(waitMs: number) {
  const [clock, limits] = [new ManualClock(), new RecordingLimits()];
  return { clock, limits, reservations: new Reservations({ limits, clock, logger: silentLogger, waitMs }) };
}

it("a reservation that waits for a report is settled by it, once", () => {
  const { clock, limits, reservations } = start(1_000);
  reservations.settleByReport(held, own);
  expect(reservations.waiting).toBe(1);
  reservations.onSettled({ requestId: "r1", account: "acme", counts: exact, costNanoUsd: 15n });
  clock.advance(1_000);
  expect(limits.settled).toMatchObject([{ reservationId: "r-r1", completionTokens: 5, costNanoUsd: "15" }]);
});

it("and with the own count when none comes in time", () => {
  const { clock, limits, reservations } = start(1_000);
  reservations.settleByReport(held, own);
  clock.advance(1_000);
  expect(limits.settled).toMatchObject([{ completionTokens: 2, costNanoUsd: "9" }]);
});

it("and at once where nothing may wait, without a timer that nobody would see fire", () => {
  const { clock, limits, reservations } = start(0);
  reservations.settleByReport(held, own);
  expect(limits.settled).toMatchObject([{ completionTokens: 2, costNanoUsd: "9" }]);
  expect([reservations.waiting, clock.pendingTimers]).toEqual([0, 0]);
});
