// Root cause: `OPTIONS *` asks about no path, and what has no path could not become a request of the app: 400.
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { expect, it } from "vitest";
import { listen } from "../../edge/node/server.ts";

it("OPTIONS * is answered 204 with the methods", async () => {
  const listener = await listen({ fetch: () => new Response("never") }, "127.0.0.1:0", "listen");
  const socket = connect(Number(new URL(listener.url).port), "127.0.0.1");
  socket.write("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 204 /u);
  expect(answer.toLowerCase()).toContain("allow: get, head, post, options");
  await listener.stop();
});
