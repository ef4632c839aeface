import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { expect, it, vi } from "vitest";
import { nodeResponseWriter } from "../../edge/node/response-writer.node.ts";

async function answering(lastBytesMs: number, answer: Buffer) {
  let tell: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => (tell = resolve));
  const server = createServer((_, outgoing: ServerResponse) => {
    outgoing.once("close", tell);
    const writer = nodeResponseWriter(outgoing, lastBytesMs);
    writer.start(200, { "content-type": "application/json" });
    writer.write(answer);
    writer.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
  const client = connect(address.port, "127.0.0.1", () => client.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
  client.on("error", () => undefined);
  const stop = (): void => {
    client.destroy();
    server.closeAllConnections();
    server.close();
  };
  return { client, closed, stop };
}

it("a client that reads nothing of what is left loses its connection", async () => {
  const { client, closed, stop } = await answering(100, Buffer.alloc(64 * 2 ** 20));
  client.pause();
  await closed;
  expect(client.bytesRead).toBeLessThan(64 * 2 ** 20);
  stop();
});

it("a client that reads gets all of it", async () => {
  const { client, closed, stop } = await answering(60_000, Buffer.alloc(8 * 2 ** 20));
  client.resume();
  await closed;
  await vi.waitFor(() => expect(client.bytesRead).toBeGreaterThan(8 * 2 ** 20));
  stop();
});
