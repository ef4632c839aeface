import { describe, expect, it } from "vitest";
import type { Upstream, UpstreamHandler, UpstreamRequest } from "../../../../edge/ports/upstream.ts";
import { fetchTextOver } from "../../../../edge/fleet/fetch-text.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

/** One exchange that the test answers. */
class Scripted implements Upstream {
  aborts = 0;
  request: UpstreamRequest | null = null;
  handler: UpstreamHandler | null = null;

  open(request: UpstreamRequest, handler: UpstreamHandler): ReturnType<Upstream["open"]> {
    this.request = request;
    this.handler = handler;
    return { sent: true, resume: () => undefined, abort: () => this.aborts++ };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function asked(): { readonly clock: ManualClock; readonly upstream: Scripted; readonly page: Promise<string> } {
  const clock = new ManualClock();
  const upstream = new Scripted();
  return { clock, upstream, page: fetchTextOver(upstream, clock)("http://m/metrics", 1_000) };
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("a page by the adapter of requests", () => {
  it("is asked for without credentials and comes whole, a letter cut in two included", async () => {
    const { clock, upstream, page } = asked();
    expect(upstream.request).toMatchObject({ url: "http://m/metrics", method: "GET", headers: {}, body: null });
    upstream.handler?.onHeaders(200, {});
    const text = bytes("a 1\nä 2\n");
    const buffer = text.slice(0, 5);
    upstream.handler?.onData(buffer);
    // Its connection has the buffer again.
    buffer.fill(0);
    upstream.handler?.onData(text.slice(5));
    upstream.handler?.onEnd();
    await expect(page).resolves.toBe("a 1\nä 2\n");
    expect(clock.pendingTimers).toBe(0);
    expect(upstream.aborts).toBe(0);
  });

  it("is none when it is no success or a redirect, and its connection is given up", async () => {
    const { clock, upstream, page } = asked();
    upstream.handler?.onHeaders(302, { location: "http://elsewhere/" });
    await expect(page).rejects.toThrow("status 302");
    expect(upstream.aborts).toBe(1);
    expect(clock.pendingTimers).toBe(0);
  });

  it("is none when it takes too long", async () => {
    const { clock, upstream, page } = asked();
    upstream.handler?.onHeaders(200, {});
    clock.advance(1_000);
    await expect(page).rejects.toThrow("it took too long");
    expect(upstream.aborts).toBe(1);
  });

  it("is none when it is endless", async () => {
    const { upstream, page } = asked();
    upstream.handler?.onHeaders(200, {});
    for (let mebibytes = 0; mebibytes < 5; mebibytes++) upstream.handler?.onData(new Uint8Array(2 ** 20));
    await expect(page).rejects.toThrow("the page is too long");
    expect(upstream.aborts).toBeGreaterThan(0);
  });

  it("is none when its machine is not there, which is named by the system's word", async () => {
    const { upstream, page } = asked();
    upstream.handler?.onFailure("unreachable", Object.assign(new Error("connect"), { code: "ECONNREFUSED" }));
    await expect(page).rejects.toThrow("ECONNREFUSED");
  });
});
