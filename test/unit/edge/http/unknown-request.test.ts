import { expect, it } from "vitest";
import { createApp } from "../../../../edge/app.ts";
import { fakeEdge, GOOD_KEY } from "../../../support/edge-deps.ts";

it("says of an unknown request id that there is no such request, and not that there is no such route", async () => {
  const headers = { authorization: `Bearer ${GOOD_KEY}` };
  const answer = await createApp(fakeEdge().deps).request("/requests/none", { headers });
  expect(answer.status).toBe(404);
  expect(await answer.json()).toMatchObject({ error: { type: "not_found_error", code: "request_not_found" } });
});
