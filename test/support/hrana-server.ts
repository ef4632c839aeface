import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { createClient, type Client, type InArgs, type InValue, type ResultSet, type Transaction } from "@libsql/client";
import { z } from "zod";

const valueSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("null") }),
  z.object({ type: z.literal("integer"), value: z.string() }),
  z.object({ type: z.literal("float"), value: z.number() }),
  z.object({ type: z.literal("text"), value: z.string() }),
  z.object({ type: z.literal("blob"), base64: z.string() }),
]);
type HranaValue = z.infer<typeof valueSchema>;

const statementSchema = z.object({
  sql: z.string().optional(),
  sql_id: z.int().optional(),
  args: z.array(valueSchema).default([]),
  named_args: z.array(z.object({ name: z.string(), value: valueSchema })).default([]),
  want_rows: z.boolean().default(true),
});
type Statement = z.infer<typeof statementSchema>;

interface Condition {
  readonly type: string;
  readonly step?: number | undefined;
  readonly cond?: Condition | undefined;
  readonly conds?: Condition[] | undefined;
}
const conditionSchema: z.ZodType<Condition> = z.lazy(() =>
  z.object({
    type: z.enum(["ok", "error", "not", "and", "or"]),
    step: z.int().optional(),
    cond: conditionSchema.optional(),
    conds: z.array(conditionSchema).optional(),
  }),
);

const requestSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("close") }),
  z.object({ type: z.literal("execute"), stmt: statementSchema }),
  z.object({
    type: z.literal("batch"),
    batch: z.object({ steps: z.array(z.object({ condition: conditionSchema.nullish(), stmt: statementSchema })) }),
  }),
  z.object({ type: z.literal("sequence"), sql: z.string().optional(), sql_id: z.int().optional() }),
  z.object({ type: z.literal("describe"), sql: z.string().optional(), sql_id: z.int().optional() }),
  z.object({ type: z.literal("store_sql"), sql_id: z.int(), sql: z.string() }),
  z.object({ type: z.literal("close_sql"), sql_id: z.int() }),
]);
type StreamRequest = z.infer<typeof requestSchema>;

const pipelineSchema = z.object({ baton: z.string().nullish(), requests: z.array(requestSchema) });

/** One Hrana stream: a database connection with its stored texts, and the transaction that BEGIN opened on it. */
interface Stream {
  client: Client;
  /** A connection that met a lock once keeps a statement open and cannot commit any more. */
  readonly connect: () => Client;
  readonly texts: Map<number, string>;
  transaction: Transaction | null;
  /** Real servers drop a stream of which nothing is heard, since its client may have died inside a transaction. */
  expiry: NodeJS.Timeout | undefined;
}

const STREAM_IDLE_MS = 3_000;
const LOCK_WAIT_MS = 5_000;

/**
 * A libSQL server for tests: Hrana 2 over HTTP with JSON (`/v2/pipeline`), on loopback, in front of a database file.
 * Streams are kept by their baton, so that interactive transactions work.
 */
export class HranaServer {
  readonly url: string;
  readonly #server: Server;
  readonly #streams: Map<string, Stream>;

  private constructor(url: string, server: Server, streams: Map<string, Stream>) {
    this.url = url;
    this.#server = server;
    this.#streams = streams;
  }

  static async start(options: {
    readonly file: string;
    readonly token: string;
    /** A free one by default. */
    readonly port?: number;
  }): Promise<HranaServer> {
    const streams = new Map<string, Stream>();
    const server = createServer((incoming, outgoing) => {
      const answer = (status: number, body: unknown): void => {
        outgoing.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
      };
      if (incoming.method !== "POST" || incoming.url !== "/v2/pipeline")
        return answer(404, { message: "no such path" });
      if (incoming.headers.authorization !== `Bearer ${options.token}`) return answer(401, { message: "not allowed" });
      textOf(incoming)
        .then((text) => pipeline(pipelineSchema.parse(JSON.parse(text)), streams, options.file))
        .then(
          (body) => answer(200, body),
          (thrown: unknown) => answer(400, { message: String(thrown) }),
        );
      return undefined;
    });
    await new Promise<void>((resolve) => server.listen(options.port ?? 0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
    return new HranaServer(`http://127.0.0.1:${address.port}`, server, streams);
  }

  async stop(): Promise<void> {
    for (const { client, expiry } of this.#streams.values()) {
      clearTimeout(expiry);
      client.close();
    }
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function pipeline(
  request: z.infer<typeof pipelineSchema>,
  streams: Map<string, Stream>,
  file: string,
): Promise<unknown> {
  const given = request.baton ?? null;
  const connect = (): Client => createClient({ url: `file:${file}`, intMode: "bigint", timeout: 1 });
  const stream: Stream | undefined =
    given === null
      ? {
          client: connect(),
          connect,
          texts: new Map(),
          transaction: null,
          expiry: undefined,
        }
      : streams.get(given);
  if (stream === undefined) throw new Error("no such stream");
  if (given !== null) streams.delete(given);
  clearTimeout(stream.expiry);
  const results: unknown[] = [];
  let closed = false;
  for (const step of request.requests) {
    if (step.type === "close") closed = true;
    results.push(await resultOf(step, stream));
  }
  const end = (): void => {
    stream.transaction?.close();
    stream.client.close();
  };
  if (closed) end();
  const baton = closed ? null : randomUUID();
  if (baton !== null) {
    streams.set(baton, stream);
    stream.expiry = setTimeout(() => {
      streams.delete(baton);
      end();
    }, STREAM_IDLE_MS);
  }
  return { baton, base_url: null, results };
}

async function resultOf(request: StreamRequest, stream: Stream): Promise<unknown> {
  try {
    return { type: "ok", response: { type: request.type, ...(await responseOf(request, stream)) } };
  } catch (thrown) {
    return { type: "error", error: errorOf(thrown) };
  }
}

async function responseOf(request: StreamRequest, stream: Stream): Promise<object> {
  switch (request.type) {
    case "execute":
      return { result: await execute(request.stmt, stream) };
    case "batch":
      return { result: await batch(request.batch.steps, stream) };
    case "sequence":
      await stream.client.executeMultiple(textFor(request, stream));
      return {};
    case "describe":
      return { result: { params: [], cols: [], is_explain: false, is_readonly: false } };
    case "store_sql":
      stream.texts.set(request.sql_id, request.sql);
      return {};
    case "close_sql":
      stream.texts.delete(request.sql_id);
      return {};
    case "close":
      return {};
    default:
      return request satisfies never;
  }
}

async function batch(
  steps: readonly { readonly condition?: Condition | null | undefined; readonly stmt: Statement }[],
  stream: Stream,
): Promise<object> {
  const results: (object | null)[] = [];
  const errors: (object | null)[] = [];
  for (const { condition, stmt } of steps) {
    let result: object | null = null;
    let error: object | null = null;
    if (condition === undefined || condition === null || holds(condition, results, errors)) {
      try {
        result = await execute(stmt, stream);
      } catch (thrown) {
        error = errorOf(thrown);
      }
    }
    results.push(result);
    errors.push(error);
  }
  return { step_results: results, step_errors: errors };
}

function holds(condition: Condition, results: readonly unknown[], errors: readonly unknown[]): boolean {
  const done = (list: readonly unknown[]): boolean => (list[condition.step ?? -1] ?? null) !== null;
  if (condition.type === "ok") return done(results);
  if (condition.type === "error") return done(errors);
  if (condition.type === "not") return condition.cond !== undefined && !holds(condition.cond, results, errors);
  const parts = (condition.conds ?? []).map((part) => holds(part, results, errors));
  return condition.type === "and" ? parts.every(Boolean) : parts.some(Boolean);
}

async function execute(statement: Statement, stream: Stream): Promise<object> {
  const named = Object.fromEntries(statement.named_args.map(({ name, value }) => [name, fromHrana(value)]));
  const args: InArgs = statement.named_args.length > 0 ? named : statement.args.map(fromHrana);
  return hranaResult(await run({ sql: textFor(statement, stream), args }, stream));
}

/** The client opens transactions on connections of their own, so BEGIN, COMMIT and ROLLBACK become its calls. */
async function run(statement: { sql: string; args: InArgs }, stream: Stream): Promise<ResultSet | null> {
  const word = /^\s*(BEGIN(?:\s+\w+)?|COMMIT|ROLLBACK)\b/i.exec(statement.sql)?.[1]?.toUpperCase() ?? "";
  if (word.startsWith("BEGIN")) {
    stream.transaction = await whenFree(stream, () =>
      stream.client.transaction(word.endsWith("IMMEDIATE") ? "write" : "deferred"),
    );
    return null;
  }
  if (word === "") return whenFree(stream, () => (stream.transaction ?? stream.client).execute(statement));
  const ending = stream.transaction;
  stream.transaction = null;
  if (ending === null) throw new Error(`${word}: no transaction is active`);
  await (word === "COMMIT" ? ending.commit() : ending.rollback());
  ending.close();
  return null;
}

/** The driver waits for a lock with the whole event loop, and whoever holds it may be another stream of this server. */
async function whenFree<Result>(stream: Stream, work: () => Promise<Result>): Promise<Result> {
  const giveUpAtMs = Date.now() + LOCK_WAIT_MS;
  for (;;) {
    try {
      return await work();
    } catch (thrown) {
      if (!errorOf(thrown).code.startsWith("SQLITE_BUSY") || Date.now() >= giveUpAtMs) throw thrown;
      if (stream.transaction !== null) throw thrown;
      stream.client.close();
      stream.client = stream.connect();
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function hranaResult(result: ResultSet | null): object {
  if (result === null) return { cols: [], rows: [], affected_row_count: 0, last_insert_rowid: null };
  return {
    cols: result.columns.map((name, place) => ({ name, decltype: result.columnTypes[place] ?? null })),
    rows: result.rows.map((row) => result.columns.map((_name, place) => toHrana(row[place]))),
    affected_row_count: result.rowsAffected,
    last_insert_rowid: result.lastInsertRowid === undefined ? null : String(result.lastInsertRowid),
  };
}

function textFor(
  request: { readonly sql?: string | undefined; readonly sql_id?: number | undefined },
  stream: Stream,
): string {
  const text = request.sql ?? stream.texts.get(request.sql_id ?? -1);
  if (text === undefined) throw new Error("no such SQL text");
  return text;
}

function fromHrana(value: HranaValue): InValue {
  switch (value.type) {
    case "null":
      return null;
    case "integer":
      return BigInt(value.value);
    case "blob":
      return Buffer.from(value.base64, "base64");
    case "float":
    case "text":
      return value.value;
    default:
      return value satisfies never;
  }
}

function toHrana(value: unknown): HranaValue {
  if (value === null || value === undefined) return { type: "null" };
  if (typeof value === "bigint") return { type: "integer", value: String(value) };
  if (typeof value === "number") return { type: "float", value };
  if (value instanceof ArrayBuffer) return { type: "blob", base64: Buffer.from(value).toString("base64") };
  if (typeof value !== "string") throw new TypeError(`not a value of SQLite: ${typeof value}`);
  return { type: "text", value };
}

function errorOf(thrown: unknown): { message: string; code: string } {
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "UNKNOWN";
  return { message: thrown instanceof Error ? thrown.message : String(thrown), code };
}

async function textOf(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString("utf8");
}
