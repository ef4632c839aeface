import { describe, expect, it } from "vitest";
import { ClientAnswer } from "../../../../../edge/dispatch/relay/client-answer.ts";
import type { ResponseWriter } from "../../../../../edge/ports/response-writer.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

describe("headers of a whole answer", () => {
  it("are what they were when it began, although a writer may hold them back", () => {
    const started: Readonly<Record<string, string>>[] = [];
    const writer: ResponseWriter = {
      started: false,
      closed: false,
      start: (_, headers) => void started.push(headers),
      write: () => true,
      end: () => undefined,
      destroy: () => undefined,
      onDrain: () => undefined,
      onClosed: () => undefined,
    };
    const answer = new ClientAnswer({ writer, clock: new ManualClock(0), isStream: false, keepAliveMs: 1_000 });
    answer.setHeaders({ "x-request-id": "r1", "content-type": "text/plain" });
    answer.startWhole(200, { "content-type": "application/json" });
    answer.setHeaders({ "x-request-id": "r2", "x-late": "yes" });
    expect(started).toEqual([{ "x-request-id": "r1", "content-type": "application/json" }]);
  });
});
