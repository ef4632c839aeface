import { spawn, type ChildProcess } from "node:child_process";
import { writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { answerOfFive, chunkText, endOfStream, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { REPOSITORY } from "../support/source-tree.ts";
import { until } from "../support/stack.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const PROGRAM = path.join(REPOSITORY, "dist/edge/node/main.js");
const readySchema = z.object({ base_url: z.string() });
const listSchema = z.object({ data: z.array(z.object({ id: z.string() })) });

describe("an edge on SIGHUP", () => {
  let folder: string;
  let remove: () => void;
  let file: string;
  let endpoint: ScriptedEndpoint;
  let child: ChildProcess;
  let log: string;
  let baseUrl: string;
  let open: ServerResponse | null;

  const write = (more: object): void => {
    const free = "127.0.0.1:0";
    const endpoints = [{ id: "one", url: endpoint.url, models: ["m"] }];
    writeFileSync(
      file,
      JSON.stringify({ listen: free, admin_listen: free, auth: { enabled: false }, endpoints, ...more }),
    );
  };
  const reload = async (said: string): Promise<void> => {
    const from = log.length;
    child.kill("SIGHUP");
    await until(`the log says "${said}":\n${log}`, () => log.slice(from).includes(said));
  };
  const ask = (model: string): Promise<Response> =>
    fetch(`${baseUrl}/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ model, messages: [{ role: "user", content: "Count." }], stream: true }),
      headers: { "content-type": "application/json" },
    });
  const models = async (): Promise<string[]> =>
    listSchema.parse(await (await fetch(`${baseUrl}/models`)).json()).data.map(({ id }) => id);

  beforeEach(async () => {
    ({ folder, remove } = temporaryFolder());
    file = path.join(folder, "edge.yaml");
    open = null;
    log = "";
    endpoint = await ScriptedEndpoint.start();
    endpoint.script = (request, response) => {
      if (open !== null) {
        answerOfFive(request, response);
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunkText({ role: "assistant", content: "before " }));
      open = response;
    };
    write({});
    child = spawn(process.execPath, [
      PROGRAM,
      "serve",
      "--json",
      "--config",
      file,
      "--data",
      path.join(folder, "data"),
    ]);
    child.stderr?.setEncoding("utf8").on("data", (text: string) => (log += text));
    const line = await new Promise<string>((resolve) => child.stdout?.setEncoding("utf8").once("data", resolve));
    baseUrl = readySchema.parse(JSON.parse(line)).base_url;
  });
  afterEach(async () => {
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    await endpoint.stop();
    remove();
  });

  it("serves new models and aliases while a stream that began before goes on to its end", async () => {
    const stream = await ask("m");
    const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader();
    expect((await reader?.read())?.value).toContain("before ");
    write({
      endpoints: [{ id: "one", url: endpoint.url, models: ["m", "n"] }],
      models: [{ name: "n", aliases: ["short"] }],
    });
    await reload("the new configuration holds");
    expect((await models()).toSorted()).toEqual(["m", "n"]);
    expect((await ask("short")).status).toBe(200);

    open?.write(chunkText({ content: "after" }, "stop"));
    open?.end(endOfStream());
    let rest = "";
    for (let part = await reader?.read(); part?.done === false; part = await reader?.read()) rest += part.value;
    expect(rest).toContain("after");
    expect(rest).toContain("[DONE]");
  });

  it("keeps the old configuration whole when the new one is wrong or needs a restart", async () => {
    const added = { endpoints: [{ id: "one", url: endpoint.url, models: ["m", "n"] }] };
    write({ ...added, router: { retries: -1 } });
    await reload("router.retries");
    write({ ...added, name: "another" });
    await reload("need a restart");
    writeFileSync(file, "listen: [");
    await reload("not valid YAML");
    expect(await models()).toEqual(["m"]);
    write(added);
    await reload("the new configuration holds");
    expect((await models()).toSorted()).toEqual(["m", "n"]);
  });
});
