import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { ScriptedEndpoint } from "../support/scripted-endpoint.ts";

const PATH = "/v1/chat/completions";
const OF_EACH = /^(x-request-id|date|x-ratelimit-(remaining|reset)-.*): .*$/gim;
const VALID = JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] });

/** One request over a connection of its own, header lines and body as given; the whole answer as text. */
function exchange(origin: string, path: string, lines: readonly string[], body: string): Promise<string> {
  const { hostname, port, host } = new URL(origin);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    let answer = "";
    socket.setEncoding("utf8").on("data", (text: string) => (answer += text));
    socket.once("error", reject).once("close", () => resolve(answer));
    const named = lines.some((line) => line.startsWith("host:")) ? [] : [`host: ${host}`];
    const head = [`POST ${path} HTTP/1.1`, ...named, "connection: close", ...lines];
    socket.write(
      `${head.join("\r\n")}\r\ncontent-length: ${Buffer.byteLength(body, "latin1")}\r\n\r\n${body}`,
      "latin1",
    );
  });
}

/** Status, headers in a row of their own, and body; without what differs from one request to the next. */
function comparable(answer: string): readonly string[] {
  const [head = "", ...body] = answer.split("\r\n\r\n");
  const [status = "", ...headers] = head.replaceAll(OF_EACH, "").split("\r\n");
  const own = headers.map((line) => line.toLowerCase()).filter((line) => line !== "" && !line.startsWith("connection"));
  return [status, ...own.toSorted(), body.join("\r\n\r\n")];
}

describe("the short way of inference requests on Node", () => {
  let endpoint: ScriptedEndpoint;
  let edge: EdgeOnNode;
  beforeAll(async () => {
    endpoint = await ScriptedEndpoint.start();
    edge = await EdgeOnNode.start({ endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }] });
  });
  afterAll(async () => {
    await edge.remove();
    await endpoint.stop();
  });

  const json = "content-type: application/json";
  const key = (): string => `authorization: Bearer ${edge.key}`;
  const cases: readonly (readonly [string, () => readonly string[], string])[] = [
    ["a whole answer", () => [json, key()], VALID],
    ["a whole answer to a page", () => [json, key(), "origin: https://page.example"], VALID],
    ["a stream", () => [json, key()], JSON.stringify({ ...JSON.parse(VALID), stream: true })],
    ["no key", () => [json], VALID],
    ["no key, from a page", () => [json, "origin: https://page.example"], VALID],
    ["a key that does not exist", () => [json, `${key().slice(0, -1)}!`], VALID],
    ["two keys that differ", () => [json, key(), "Authorization: Bearer other"], VALID],
    ["the same key twice", () => [json, key(), key()], VALID],
    ["another media type", () => ["content-type: text/plain", key()], VALID],
    ["a body that is no JSON", () => [json, key()], "{"],
    ["a body that is no UTF-8", () => [json, key()], '{"model":"\xff"}'],
    ["a body that is no object", () => [json, key()], "[]"],
    ["an empty body", () => [json, key()], ""],
    ["a member of the wrong type", () => [json, key()], '{"model":"m","stream":1}'],
    ["a model that is not served", () => [json, key()], '{"model":"n"}'],
    ["a band that does not exist", () => [json, key(), "X-Steerage-Band: none"], VALID],
  ];

  it.each(cases)("answers as the app does: %s", async (_, lines, body) => {
    const short = await exchange(edge.origin, PATH, lines(), body);
    // The app takes what has a query.
    const usual = await exchange(edge.origin, `${PATH}?usual`, lines(), body);
    expect(comparable(short)).toEqual(comparable(usual));
    expect(short).toMatch(/^HTTP\/1\.1 \d{3} /);
    expect(short).toMatch(/^x-request-id: req_[0-9A-Za-z]{22}\r$/m);
  });

  it("leaves a request that names no host to the app", async () => {
    const answer = await exchange(edge.origin, PATH, [json, key(), "host: a b"], VALID);
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  });

  it("forgets a request whose client leaves before its body is whole (C054)", async () => {
    const { hostname, port, host } = new URL(edge.origin);
    const before = endpoint.seen.length;
    const head = [`POST ${PATH} HTTP/1.1`, `host: ${host}`, json, key(), "content-length: 1000"].join("\r\n");
    await new Promise<void>((resolve) => {
      const socket = connect(Number(port), hostname, () => socket.write(`${head}\r\n\r\n{`, () => socket.destroy()));
      socket.once("close", () => resolve());
    });
    expect(await exchange(edge.origin, PATH, [json, key()], VALID)).toMatch(/^HTTP\/1\.1 200 /);
    expect(endpoint.seen.length).toBe(before + 1);
  });
});
