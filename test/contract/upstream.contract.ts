import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Upstream, UpstreamExchange, UpstreamFailure, UpstreamRequest } from "../../edge/ports/upstream.ts";
import { cut, refusedOrigin, ScriptedUpstream, waitFor, type Script } from "../support/scripted-upstream.ts";

/** Everything an exchange told its handler, in order. */
class Recorder {
  readonly events: string[] = [];
  status = 0;
  headers: Readonly<Record<string, string>> = {};
  bytes = 0;
  failure: UpstreamFailure | null = null;
  /** Chunks that may come before the handler says "no room". */
  roomFor = Infinity;
  text = "";
  onHeadersHook: () => void = () => undefined;
  readonly #decoder = new TextDecoder();

  readonly handler = {
    onHeaders: (status: number, headers: Readonly<Record<string, string>>): void => {
      this.events.push("headers");
      this.status = status;
      this.headers = headers;
      this.onHeadersHook();
    },
    onData: (chunk: Uint8Array): boolean => {
      this.events.push("data");
      this.bytes += chunk.length;
      if (this.bytes < 1_000_000) this.text += this.#decoder.decode(chunk, { stream: true });
      return --this.roomFor > 0;
    },
    onEnd: (): void => {
      this.events.push("end");
    },
    onFailure: (failure: UpstreamFailure): void => {
      this.events.push("failure");
      this.failure = failure;
    },
  };

  get over(): boolean {
    return this.events.includes("end") || this.events.includes("failure");
  }
}

const request = (url: string, more: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
  url,
  method: "POST",
  headers: { "content-type": "application/json", authorization: "Bearer t" },
  body: new TextEncoder().encode('{"a":"é"}'),
  dialTimeoutMs: 2_000,
  ...more,
});

export interface UpstreamFlavour {
  readonly name: string;
  readonly create: () => Upstream;
}

/** What every adapter of the Upstream port must do, on a real loopback server. */
export function upstreamContract({ name, create }: UpstreamFlavour): void {
  describe(`${name} as an Upstream`, () => {
    let upstream: Upstream;
    let server: ScriptedUpstream | null = null;
    beforeEach(() => {
      upstream = create();
    });
    afterEach(async () => {
      await upstream.close();
      await server?.stop();
      server = null;
    });

    const open = async (
      script: Script,
      recorder = new Recorder(),
    ): Promise<{ recorder: Recorder; exchange: UpstreamExchange; server: ScriptedUpstream }> => {
      server = await ScriptedUpstream.start(script);
      return { recorder, exchange: upstream.open(request(`${server.url}/v1/x?y=1`), recorder.handler), server };
    };

    it("sends method, path, headers and body as given and asks for no compression", async () => {
      const { recorder, server: seen } = await open(({ response }) => void response.end("ok"));
      await waitFor(() => recorder.over);
      const [exchange] = seen.exchanges;
      expect(exchange).toMatchObject({ method: "POST", path: "/v1/x?y=1", body: '{"a":"é"}' });
      expect(exchange?.headers).toMatchObject({
        "content-type": "application/json",
        authorization: "Bearer t",
        "accept-encoding": "identity",
      });
    });

    it("tells status, lower-case headers, data and end, in this order", async () => {
      const { recorder } = await open(({ response }) => {
        response.writeHead(418, { "X-Steerage-Steering": "none", "Content-Type": "text/plain" });
        response.end("short and stout");
      });
      await waitFor(() => recorder.over);
      expect(recorder.status).toBe(418);
      expect(recorder.headers).toMatchObject({ "x-steerage-steering": "none", "content-type": "text/plain" });
      expect(recorder.text).toBe("short and stout");
      expect([...new Set(recorder.events)]).toEqual(["headers", "data", "end"]);
    });

    it("hands on headers before there is a body, and every part as it comes", async () => {
      const { recorder, server: seen } = await open(({ response }) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
      });
      await waitFor(() => recorder.events.includes("headers"));
      const { response } = await seen.exchange(0);
      response.write("a");
      await waitFor(() => recorder.text === "a");
      response.end("b");
      await waitFor(() => recorder.over);
      expect(recorder.text).toBe("ab");
    });

    it("follows no redirect", async () => {
      const { recorder, server: seen } = await open(({ response }) => {
        response.writeHead(302, { location: "/elsewhere" });
        response.end();
      });
      await waitFor(() => recorder.over);
      expect(recorder.status).toBe(302);
      expect(seen.exchanges).toHaveLength(1);
    });

    it("calls a refused connection unreachable", async () => {
      const recorder = new Recorder();
      upstream.open(request(await refusedOrigin()), recorder.handler);
      await waitFor(() => recorder.over);
      expect(recorder.events).toEqual(["failure"]);
      expect(recorder.failure).toBe("unreachable");
    });

    it("tells a connection cut before the headers from one cut inside the body", async () => {
      const before = await open((exchange) => cut(exchange));
      await waitFor(() => before.recorder.over);
      expect(before.recorder.events).toEqual(["failure"]);
      expect(before.recorder.failure).toBe("closed_before_headers");
      await before.server.stop();

      const inside = await open((exchange) => {
        exchange.response.writeHead(200, { "content-length": "100" });
        exchange.response.write("half", () => cut(exchange));
      });
      await waitFor(() => inside.recorder.over);
      expect(inside.recorder.failure).toBe("closed_in_body");
      expect(inside.recorder.events.filter((event) => event === "failure" || event === "end")).toEqual(["failure"]);
    });

    it("holds a fast sender back while the handler has no room, and loses nothing", async () => {
      const block = Buffer.alloc(64 * 1_024, "x");
      const blocks = 512;
      let sent = 0;
      const recorder = new Recorder();
      recorder.roomFor = 4;
      const { exchange } = await open(async ({ response }) => {
        response.writeHead(200);
        for (; sent < blocks; sent++) {
          if (!response.write(block)) await new Promise((resolve) => response.once("drain", resolve));
        }
        response.end();
      }, recorder);
      await waitFor(() => recorder.roomFor === 0);
      // The kernel's buffers fill up; then the sender must stand still.
      let last = -1;
      await waitFor(() => {
        const still = sent === last;
        last = sent;
        return still && sent > 0;
      });
      expect(sent).toBeLessThan(blocks);
      expect(recorder.events.filter((event) => event === "data")).toHaveLength(4);
      recorder.roomFor = Infinity;
      exchange.resume();
      await waitFor(() => recorder.over);
      expect(recorder.bytes).toBe(block.length * blocks);
    });

    it.each(["waiting for headers", "inside the body", "with no room"])(
      "closes the connection when aborted %s, and calls nothing afterwards",
      async (phase) => {
        const recorder = new Recorder();
        if (phase === "with no room") recorder.roomFor = 1;
        const { exchange, server: seen } = await open(({ response }) => {
          if (phase === "waiting for headers") return;
          response.writeHead(200);
          response.write("x");
        }, recorder);
        const { closed, response } = await seen.exchange(0);
        if (phase !== "waiting for headers") await waitFor(() => recorder.bytes > 0);
        const before = recorder.events.length;
        exchange.abort();
        exchange.abort();
        expect(await closed).toEqual({ early: true });
        response.write("more");
        await waitFor(() => seen.openConnections === 0);
        expect(recorder.events).toHaveLength(before);
      },
    );

    it("can be aborted from inside its own callback", async () => {
      const recorder = new Recorder();
      let exchange: UpstreamExchange | null = null;
      recorder.onHeadersHook = () => exchange?.abort();
      const opened = await open(({ response }) => {
        response.writeHead(200);
        response.write("x");
      }, recorder);
      exchange = opened.exchange;
      const { closed } = await opened.server.exchange(0);
      expect(await closed).toEqual({ early: true });
      expect(recorder.events).toEqual(["headers"]);
    });

    it("sends nothing when aborted before there was a connection", async () => {
      const { exchange, recorder, server: seen } = await open(({ response }) => void response.end());
      exchange.abort();
      const second = new Recorder();
      upstream.open(request(`${seen.url}/second`), second.handler);
      await waitFor(() => second.over);
      expect(recorder.events).toEqual([]);
      expect(seen.exchanges.map(({ path }) => path)).toEqual(["/second"]);
    });

    it("sends many requests to one origin at a time", async () => {
      server = await ScriptedUpstream.start(({ response, body }) => void response.end(body));
      const recorders = Array.from({ length: 40 }, () => new Recorder());
      const { url } = server;
      recorders.forEach((recorder, place) =>
        upstream.open(request(url, { body: new TextEncoder().encode(String(place)) }), recorder.handler),
      );
      await waitFor(() => recorders.every(({ over }) => over));
      expect(recorders.map(({ text }) => text)).toEqual(recorders.map((_, place) => String(place)));
    });
  });
}
