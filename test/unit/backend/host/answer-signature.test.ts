import { readFile } from "node:fs/promises";
import path from "node:path";
import { Agent } from "undici";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { EdgeKeys } from "../../../../backend/host/edge-keys.ts";
import { deliverReport } from "../../../../backend/host/report-delivery.ts";
import { FakeEdge } from "../../../support/fake-edge.ts";
import { hostReport } from "../../../support/fleet-report.ts";
import { keptLogger } from "../../../support/silent-logger.ts";
import { temporaryFolder } from "../../../support/temporary-folder.ts";

describe("the signature of an answer to a report, with somebody in the middle", () => {
  let edge: FakeEdge;
  let file: string;
  let keys: EdgeKeys;
  let seq = 0;
  let log = keptLogger();
  let root = temporaryFolder();

  const open = (fingerprints: readonly string[] = [], host = "gpu-1"): Promise<EdgeKeys> =>
    EdgeKeys.open({ host, file, fingerprints, logger: log.logger });
  const taken = async (by = keys): Promise<boolean> => {
    const report = hostReport({ seq: ++seq });
    const dispatcher = new Agent();
    const delivered = await deliverReport({ server: edge.url, token: edge.token, report, dispatcher });
    await dispatcher.close();
    return by.accept(edge.url, delivered, 0, 0);
  };

  beforeEach(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    log = keptLogger();
    root = temporaryFolder();
    file = path.join(root.folder, "edge-keys.json");
    keys = await open();
  });
  afterEach(async () => {
    await edge.stop();
    root.remove();
  });

  it("is asked for at every contact, and an honest answer is taken", async () => {
    expect(await taken()).toBe(true);
    expect(await taken()).toBe(true);
    expect(keys.refusals).toBe(0);
    expect(await taken(await open([], "another-host"))).toBe(false);
    edge.onTheWay = (text) => [text, null];
    expect(await taken()).toBe(false);
    expect(keys.refusals).toBe(1);
  });

  it("does not hold for an answer that was altered", async () => {
    expect(await taken()).toBe(true);
    edge.onTheWay = (text, signature) => [text.replace('"ask_ended":[]', '"ask_ended": []'), signature];
    expect(await taken()).toBe(false);
    expect(log.lines.filter((line) => line.includes("altered on the way"))).toHaveLength(1);
    edge.onTheWay = (...sent) => sent;
    expect(await taken()).toBe(true);
  });

  it("does not hold for another report", async () => {
    let earlier: readonly [string, string] | null = null;
    edge.onTheWay = (...sent) => (earlier ??= sent);
    expect(await taken()).toBe(true);
    expect(await taken()).toBe(false);
  });

  it("proves nothing at a first contact that neither TLS nor loopback nor a pin vouches for", async () => {
    const report = hostReport({ seq: ++seq });
    const dispatcher = new Agent();
    const delivered = await deliverReport({ server: edge.url, token: edge.token, report, dispatcher });
    await dispatcher.close();
    const [plain, pins] = ["http://10.0.0.7:8081", edge.keys.map(({ kid }) => kid)];
    expect(await keys.accept(plain, delivered, 0, 0)).toBe(false);
    expect(keys.edgeOf(plain)).toBeNull();
    expect(log.lines.filter((line) => line.includes("set edge_key_fingerprints"))).toHaveLength(1);
    expect(await keys.accept("https://edge.example", delivered, 0, 0)).toBe(true);
    expect(await (await open(pins)).accept(plain, delivered, 0, 0)).toBe(true);
    // What was pinned once is known from then on.
    expect(await (await open()).accept(plain, delivered, 0, 0)).toBe(true);
  });

  it("must be of a key that is known, whatever keys the answer names", async () => {
    expect(await taken()).toBe(true);
    const known = await readFile(file, "utf8");
    const stranger = await FakeEdge.start({ host: "gpu-1" });
    const [own, other] = [edge.keys, stranger.keys];
    const port = edge.port;
    await edge.stop();
    await stranger.stop();
    // He holds the address, and names the known key beside his own.
    await stranger.listen(port);
    edge = stranger;
    edge.keys = [...other, ...own];
    expect(await taken()).toBe(false);
    expect(await readFile(file, "utf8")).toBe(known);
    expect(await taken(await open(own.map(({ kid }) => kid)))).toBe(false);
    expect(await taken(await open(other.map(({ kid }) => kid)))).toBe(true);
  });
});
