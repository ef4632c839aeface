import { describe, expect, it } from "vitest";
import { createApp } from "../../../../edge/app.ts";
import { fakeEdge, GOOD_KEY, MODEL } from "../../../support/edge-deps.ts";

const CHAT = "/v1/chat/completions";
const question = { model: MODEL.id, messages: [{ role: "user", content: "Hello" }] };

function setUp() {
  const edge = fakeEdge();
  const app = createApp(edge.deps);
  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    app.request(path, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json", authorization: `Bearer ${GOOD_KEY}`, ...headers },
    });
  return { ...edge, post };
}

describe("what a caller says of its call", () => {
  it("clamps the band to the project's highest and refuses one that does not exist", async () => {
    const { post, dispatched } = setUp();
    await post(CHAT, question, { "x-steerage-band": "interactive" });
    await post(CHAT, question, { "x-steerage-band": "bulk" });
    await post(CHAT, question);
    expect(dispatched.map(({ band }) => band)).toEqual(["default", "bulk", "default"]);
    const response = await post(CHAT, question, { "x-steerage-band": "turbo" });
    expect(response.status).toBe(400);
  });

  it("reaches dispatch: its session, bounded, whether it comes back, and whether it wants to know its place", async () => {
    const { post, dispatched } = setUp();
    await post(CHAT, question, { "x-steerage-session": "s".repeat(300), "x-stainless-retry-count": "1" });
    await post(CHAT, question, { "x-stainless-retry-count": "0", "x-steerage-progress": "comments" });
    await post(CHAT, question);
    expect(dispatched.map(({ session, returning, progress }) => [session, returning, progress])).toEqual([
      ["s".repeat(256), true, false],
      [null, false, true],
      [null, null, false],
    ]);
  });
});
