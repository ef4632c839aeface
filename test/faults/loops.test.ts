import { once } from "node:events";
import { connect, createServer } from "node:net";
import OpenAI, { APIError } from "openai";
import { afterEach, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { answerOfFive, FIVE_WORDS, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { freePorts } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user" as const, content: "Count." }] };

const opened: { remove(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one.remove();
});

const edgeAt = async (port: number, url: string): Promise<EdgeOnNode> => {
  const edge = await EdgeOnNode.start({
    listen: `127.0.0.1:${port}`,
    auth: { enabled: false },
    endpoints: [{ id: "next", url, models: ["m"] }],
    drain_timeout: "1s",
  });
  opened.push(edge);
  return edge;
};

/** The address of something that stands in front of a port, as a load balancer does: no configuration shows the circle. */
const inFrontOf = async (port: number): Promise<string> => {
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    near.on("error", () => far.destroy()).pipe(far);
    far.on("error", () => near.destroy()).pipe(near);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  opened.push({ remove: () => Promise.resolve(void server.close()) });
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
};

describe("an endpoint whose address leads back (C119)", () => {
  // Its own address is refused when the configuration is read.
  it.each([2, 3])("over %s edges is found out at once, and clients are told not to repeat it", async (count) => {
    const ports = await freePorts(count);
    const origins = ports.map((port) => `http://127.0.0.1:${port}`);
    for (const [place, port] of ports.entries()) await edgeAt(port, await inFrontOf(ports[(place + 1) % count] ?? 0));
    for (const stream of [false, true]) {
      const answer = await fetch(`${origins[0]}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ ...question, stream }),
      });
      expect(answer.status).toBe(508);
      expect(answer.headers.get("x-should-retry")).toBe("false");
      expect(await answer.json()).toMatchObject({
        error: { code: "loop_detected", type: "server_error", param: null },
      });
    }
    let attempts = 0;
    const client = new OpenAI({
      baseURL: `${origins[0]}/v1`,
      apiKey: "none",
      maxRetries: 2,
      fetch: (...request) => {
        attempts++;
        return fetch(...request);
      },
    });
    await expect(client.chat.completions.create(question)).rejects.toThrow(APIError);
    expect(attempts).toBe(1);
  });

  it("is not taken for an edge that stands in front of another edge", async () => {
    const machine = await ScriptedEndpoint.start();
    opened.push({ remove: () => machine.stop() });
    machine.script = answerOfFive;
    const [port = 0, inner = 0] = await freePorts(2);
    await edgeAt(inner, machine.url);
    const outer = await edgeAt(port, `http://127.0.0.1:${inner}`);
    const answer = await outer.post("/chat/completions", question);
    expect(await answer.json()).toMatchObject({ choices: [{ message: { content: FIVE_WORDS.join("") } }] });
    expect(String(machine.seen[0]?.headers["x-steerage-via"]).split(", ")).toHaveLength(2);
  });
});
