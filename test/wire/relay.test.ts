import { request as httpRequest, type IncomingMessage } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { NodeAnswers } from "../../edge/node/respond.node.ts";
import { listen, type Listener } from "../../edge/node/server.ts";
import { UndiciUpstream } from "../../edge/node/upstream.undici.ts";
import { dispatchBench, replica } from "../support/dispatch-bench.ts";
import { inferenceRequest } from "../support/dispatch-fakes.ts";
import { delta, finish, usageChunk } from "../support/scripted-exchange.ts";
import { cut, refusedOrigin, ScriptedUpstream, waitFor, type Script } from "../support/scripted-upstream.ts";

/** The whole way through real sockets: a client, the pinned server adapter, dispatch, undici, a scripted machine. */
async function wire(script: Script, options: { slots?: number; secondUrl?: string } = {}) {
  const machine = await ScriptedUpstream.start(script);
  const upstream = new UndiciUpstream();
  const replicas = [
    replica("gpu/r1", { slots: options.slots ?? 4, target: { url: machine.url } }),
    ...(options.secondUrl === undefined
      ? []
      : [replica("dead/r1", { weight: 100, target: { url: options.secondUrl } })]),
  ];
  const made = await dispatchBench({ clock: nodeClock, upstream, replicas });
  let count = 0;
  const listener: Listener = await listen(
    {
      fetch: async (request: Request, bindings: object) => {
        const body = z.record(z.string(), z.unknown()).parse(await request.json());
        const requestId = `req_${String(++count).padStart(22, "0")}`;
        return new NodeAnswers().respond({ request, bindings }, (writer) =>
          made.dispatcher.run(inferenceRequest(body, { requestId, receivedAtMs: Date.now() }), writer),
        );
      },
    },
    "127.0.0.1:0",
    "the edge under test",
  );
  const stop = async (): Promise<void> => {
    listener.breakConnections();
    await Promise.all([listener.stop(), upstream.close(), machine.stop()]);
  };
  return { ...made, machine, url: listener.url, stop };
}

const post = (url: string, body: object): Promise<Response> =>
  fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** A client whose socket the test holds in its hand. */
function rawClient(url: string, body: object) {
  let response: IncomingMessage | null = null;
  const outgoing = httpRequest(url, { method: "POST", agent: false }, (incoming) => {
    response = incoming;
    incoming.on("error", () => undefined);
  });
  outgoing.on("error", () => undefined);
  outgoing.end(JSON.stringify(body));
  return { response: () => waitFor(() => response), leave: () => outgoing.destroy() };
}

const frame = (value: unknown): string => `data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`;
const STREAM_HEAD = { "content-type": "text/event-stream" };

describe("the relay over real sockets", () => {
  let running: Awaited<ReturnType<typeof wire>> | null = null;
  const start = async (...args: Parameters<typeof wire>): ReturnType<typeof wire> => {
    running = await wire(...args);
    return running;
  };
  afterEach(async () => {
    await running?.stop();
    running = null;
  });

  it("keeps characters whole when the machine writes byte by byte (C001)", async () => {
    const { url } = await start(async ({ response }) => {
      response.writeHead(200, STREAM_HEAD);
      for (const byte of Buffer.from(frame(delta("é日😀")) + frame(finish("stop")) + frame("[DONE]"))) {
        response.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    });
    const text = await (await post(url, { stream: true })).text();
    expect(text).toBe(frame(delta("é日😀")) + frame(finish("stop")) + frame("[DONE]"));
  });

  it("has exactly one framing header each way, and nothing internal (C018)", async () => {
    const { url, machine } = await start(({ response }) => {
      response.writeHead(200, { ...STREAM_HEAD, "x-engine": "secret", "keep-alive": "timeout=9", server: "x" });
      response.end(frame(finish("stop")) + frame("[DONE]"));
    });
    const response = await post(url, { stream: true });
    await response.text();
    expect(response.headers.get("transfer-encoding")).toBe("chunked");
    expect(response.headers.get("content-length")).toBeNull();
    expect(response.headers.get("cache-control")).toBe("no-cache, no-transform");
    expect([response.headers.get("x-engine"), response.headers.get("server")]).toEqual([null, null]);
    const { headers } = await machine.exchange(0);
    expect(headers["content-length"]).toBeDefined();
    expect(headers["transfer-encoding"]).toBeUndefined();
  });

  it.each(["stream", "whole"])(
    "closes the machine's connection when the client of a %s leaves, and the one slot serves the next (C021, C023, C027)",
    async (kind) => {
      const { url, machine, inFlight, ledger } = await start(
        ({ response, body }) => {
          if (body.includes('"short"')) {
            response.writeHead(200, { "content-type": "application/json" });
            response.end(JSON.stringify({ usage: { prompt_tokens: 1, completion_tokens: 1 } }));
          } else if (kind === "stream") {
            response.writeHead(200, STREAM_HEAD);
            response.write(frame(delta("a")));
          }
        },
        { slots: 1 },
      );
      for (let round = 0; round < 5; round++) {
        const client = rawClient(url, { stream: kind === "stream" });
        const exchange = await machine.exchange(2 * round);
        if (kind === "stream") await client.response();
        client.leave();
        expect(await exchange.closed).toEqual({ early: true });
        const next = await post(url, { note: "short" });
        expect(next.status).toBe(200);
        await next.text();
      }
      await waitFor(() => ledger.settled.length === 10);
      expect(ledger.settled.map(({ outcome }) => outcome)).toEqual(
        Array.from({ length: 5 }, () => ["cancelled", "completed"]).flat(),
      );
      expect(await inFlight()).toBe(0);
    },
  );

  it("holds a fast machine back for a slow client, and loses nothing (C029)", async () => {
    const chunk = frame(delta("x".repeat(16 * 1_024)));
    const chunks = 3_000;
    let sent = 0;
    const { url } = await start(async ({ response }) => {
      response.writeHead(200, STREAM_HEAD);
      for (; sent < chunks; sent++)
        if (!response.write(chunk)) await new Promise((resolve) => response.once("drain", resolve));
      response.end(frame(finish("stop")) + frame("[DONE]"));
    });
    const client = rawClient(url, { stream: true });
    const response = await client.response();
    let last = -1;
    await waitFor(() => {
      const still = sent === last && sent > 0;
      last = sent;
      return still;
    });
    expect(sent).toBeLessThan(chunks);
    let bytes = 0;
    let end = "";
    for await (const part of response) {
      bytes += Buffer.byteLength(String(part));
      end = (end + String(part)).slice(-100);
    }
    expect(bytes).toBe(Buffer.byteLength(chunk) * chunks + Buffer.byteLength(frame(finish("stop")) + frame("[DONE]")));
    expect(end.endsWith(frame("[DONE]"))).toBe(true);
  });

  it("answers 502 with the envelope when the machine closes without a word (C014)", async () => {
    const { url, ledger } = await start((exchange) => cut(exchange));
    const response = await post(url, {});
    expect(response.status).toBe(502);
    expect(response.headers.get("content-type")).toContain("application/json");
    expect(await response.json()).toMatchObject({
      error: { code: "upstream_error", type: "server_error", param: null },
    });
    expect(ledger.settled[0]?.attempts).toMatchObject([
      { awaitReport: true, unbilledReason: "failed_before_first_token" },
    ]);
  });

  it("ends a stream that the machine's death cut with an error event", async () => {
    const { url } = await start((exchange) => {
      exchange.response.writeHead(200, STREAM_HEAD);
      exchange.response.write(frame(delta("a")), () => cut(exchange));
    });
    const text = await (await post(url, { stream: true })).text();
    expect(text).toContain('"code":"upstream_truncated"');
    expect(text).not.toContain("[DONE]");
  });

  it("goes on to another machine when the first is dead", async () => {
    const { url, ledger } = await start(
      ({ response }) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "2" });
        response.end("{}");
      },
      { secondUrl: await refusedOrigin() },
    );
    for (let round = 0; round < 12; round++) {
      const response = await post(url, {});
      expect([response.status, await response.text()]).toEqual([200, "{}"]);
    }
    // A handful of tries, then the breaker leaves it alone.
    const tries = ledger.started.filter(({ backend }) => backend === "dead").length;
    expect(tries).toBeGreaterThan(0);
    expect(tries).toBeLessThanOrEqual(5);
  });

  it("serves many streams at once, each its own text", async () => {
    const { url, inFlight } = await start(async ({ response, body }) => {
      const { user }: { user: string } = z.looseObject({ user: z.string() }).parse(JSON.parse(body));
      response.writeHead(200, STREAM_HEAD);
      for (let part = 0; part < 5; part++) {
        response.write(frame(delta(`${user}:${part};`)));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end(frame(finish("stop")) + frame(usageChunk(1, 5)) + frame("[DONE]"));
    });
    const texts = await Promise.all(
      Array.from({ length: 40 }, async (_, place) => (await post(url, { stream: true, user: `u${place}` })).text()),
    );
    texts.forEach((text, place) => {
      expect(text).toBe(
        [0, 1, 2, 3, 4].map((part) => frame(delta(`u${place}:${part};`))).join("") +
          frame(finish("stop")) +
          frame("[DONE]"),
      );
    });
    expect(await inFlight()).toBe(0);
  });
});
