import { request as httpRequest, type IncomingMessage } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import type { ResponseWriter } from "../../edge/ports/response-writer.ts";
import { waitFor } from "../support/scripted-upstream.ts";

export interface Serving {
  readonly url: string;
  stop(): Promise<void>;
}

export interface ResponseWriterFlavour {
  readonly name: string;
  /** A real server on loopback that gives every request to `run` with a writer of this flavour. */
  readonly serve: (run: (writer: ResponseWriter) => void) => Promise<Serving>;
}

/** A client that reads nothing until told to. */
async function connect(url: string): Promise<{ response: () => Promise<IncomingMessage>; leave: () => void }> {
  let response: IncomingMessage | null = null;
  const outgoing = httpRequest(url, { agent: false }, (incoming) => {
    response = incoming;
    incoming.on("error", () => undefined);
  });
  outgoing.on("error", () => undefined);
  outgoing.end();
  return { response: () => waitFor(() => response), leave: () => outgoing.destroy() };
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of response) text += String(part);
  return text;
}

/** What every adapter of the ResponseWriter port must do, seen by a real client over a real socket. */
export function responseWriterContract({ name, serve }: ResponseWriterFlavour): void {
  describe(`${name} as a ResponseWriter`, () => {
    let serving: Serving | null = null;
    afterEach(async () => {
      await serving?.stop();
      serving = null;
    });

    const start = async (): Promise<{ url: string; writer: (place?: number) => Promise<ResponseWriter> }> => {
      const writers: ResponseWriter[] = [];
      serving = await serve((writer) => writers.push(writer));
      return { url: serving.url, writer: (place = 0) => waitFor(() => writers[place]) };
    };
    it("brings status, headers and everything written, text and bytes, in order", async () => {
      const { url, writer } = await start();
      const answer = fetch(url);
      const w = await writer();
      expect(w.started).toBe(false);
      w.start(418, { "content-type": "text/plain", "x-steerage-route": "a/b;attempts=1" });
      expect(w.started).toBe(true);
      w.write("é");
      w.write(new TextEncoder().encode("日😀"));
      w.end();
      const response = await answer;
      expect(response.status).toBe(418);
      expect(response.headers.get("x-steerage-route")).toBe("a/b;attempts=1");
      expect(await response.text()).toBe("é日😀");
      expect(w.closed).toBe(false);
    });

    it("sends the head at once, before there is a body", async () => {
      const { url, writer } = await start();
      const client = await connect(url);
      (await writer()).start(200, { "content-type": "text/event-stream" });
      const response = await client.response();
      expect(response.headers["content-type"]).toBe("text/event-stream");
      (await writer()).end();
    });

    it("throws when it is started twice", async () => {
      const { url, writer } = await start();
      const answer = fetch(url);
      const w = await writer();
      w.start(200, {});
      expect(() => w.start(200, {})).toThrow("started already");
      w.end();
      await (await answer).text();
    });

    it("breaks the connection on destroy, so that a cut answer is not taken for a whole one", async () => {
      const { url, writer } = await start();
      const client = await connect(url);
      const w = await writer();
      w.start(200, {});
      w.write("half");
      const response = await client.response();
      const text = textOf(response);
      w.destroy();
      await expect(text).rejects.toThrow("aborted");
    });

    it("says no room when the client is slow, fires drain when there is some, and loses nothing", async () => {
      const { url, writer } = await start();
      const client = await connect(url);
      const w = await writer();
      w.start(200, {});
      const block = "x".repeat(64 * 1_024);
      let drained = 0;
      w.onDrain(() => drained++);
      let blocks = 0;
      // The kernel takes some megabytes before the writer notices.
      let drainedAtOnce = 0;
      await waitFor(() => {
        blocks++;
        const isFull = !w.write(block);
        drainedAtOnce = drained;
        return isFull;
      });
      expect(drainedAtOnce).toBe(0);
      const text = textOf(await client.response());
      await waitFor(() => drained > 0);
      w.end();
      expect((await text).length).toBe(block.length * blocks);
    });

    it("fires closed once when the client leaves in the middle, and ignores what is written after (C027, C028)", async () => {
      const { url, writer } = await start();
      const client = await connect(url);
      const w = await writer();
      let closed = 0;
      w.onClosed(() => closed++);
      w.start(200, {});
      w.write("x");
      await client.response();
      client.leave();
      await waitFor(() => closed > 0);
      expect(w.closed).toBe(true);
      expect(w.write("more")).toBe(true);
      w.end();
      expect(closed).toBe(1);
    });

    it("fires closed when the client leaves before there is an answer, also for a listener that comes later", async () => {
      const { url, writer } = await start();
      const client = await connect(url);
      const w = await writer();
      client.leave();
      await waitFor(() => w.closed);
      let closed = 0;
      w.onClosed(() => closed++);
      expect(closed).toBe(1);
      w.start(200, {});
      w.write("x");
      w.end();
    });

    it("fires nothing after its own end or destroy", async () => {
      const { url, writer } = await start();
      const answer = fetch(url);
      const w = await writer();
      let closed = 0;
      w.onClosed(() => closed++);
      w.start(200, {});
      w.end();
      await (await answer).text();
      const client = await connect(url);
      const second = await writer(1);
      second.onClosed(() => closed++);
      second.destroy();
      client.leave();
      await serving?.stop();
      serving = null;
      expect(closed).toBe(0);
    });
  });
}
