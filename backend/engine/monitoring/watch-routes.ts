import type { IncomingMessage, ServerResponse } from "node:http";
import { z } from "zod";
import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import { SSE_HEADERS } from "../../../shared/sse/writer.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import { ENGINE_WATCH_LISTS_PATH } from "../../ports/watch-lists.ts";
import { sendJson } from "../http/send.ts";
import { sequenceAfter, streamEvents } from "./event-stream.ts";
import { BUCKET_MS, KEPT_BUCKETS } from "./feature-windows.ts";
import type { WatchList } from "./watch-list.ts";
import type { Watching } from "./watching.ts";

export interface WatchRouteDeps {
  readonly watching: Watching;
  readonly clock: Pick<Clock, "after">;
  readonly readBody: (request: IncomingMessage) => Promise<unknown>;
}

const PLACE = /^(?:\/([^/]+)(\/events)?)?$/;
/** Of one watch list. */
const MAX_STREAMS = 16;

const wholeNumber = z.string().regex(/^\d{1,15}$/, "must be a whole number");
const statisticsQuery = z.strictObject({
  minutes: wholeNumber.transform(Number).pipe(z.int().min(1).max(KEPT_BUCKETS)).default(KEPT_BUCKETS),
});
const eventsQuery = z.strictObject({
  after: wholeNumber.transform(Number).optional(),
  limit: wholeNumber.transform(Number).pipe(z.int().min(1).max(1_000)).default(100),
  stream: z.enum(["true", "false"]).optional(),
});

/** Whether a path is one of these; the answer may still be that there is nothing. */
export const isWatchPath = (path: string): boolean =>
  path === ENGINE_WATCH_LISTS_PATH || path.startsWith(`${ENGINE_WATCH_LISTS_PATH}/`);

/** Watch lists over HTTP, for operators. Throws an ApiError that names what is at fault. */
export async function answerWatchCall(
  request: IncomingMessage,
  response: ServerResponse,
  deps: WatchRouteDeps,
): Promise<void> {
  const { watching } = deps;
  const [path = "", query = ""] = (request.url ?? "").split("?", 2);
  const [whole, id, events] = PLACE.exec(path.slice(ENGINE_WATCH_LISTS_PATH.length)) ?? [];
  if (whole === undefined) throw new ApiError("route_not_found");
  const method = allowed(
    request,
    response,
    id === undefined || events !== undefined ? ["GET"] : ["GET", "PUT", "DELETE"],
  );
  if (id === undefined) {
    sendJson(response, 200, { object: "list", data: watching.lists.map((list) => summaryOf(list, watching)) });
  } else if (events !== undefined) {
    answerEvents(watching.list(id), readQuery(eventsQuery, query), { request, response, deps });
  } else if (method === "PUT") {
    sendJson(response, 200, summaryOf(watching.put(id, await deps.readBody(request)), watching));
  } else if (method === "DELETE") {
    watching.remove(id);
    sendJson(response, 200, { id, deleted: true });
  } else {
    const { minutes } = readQuery(statisticsQuery, query);
    sendJson(response, 200, statisticsOf(watching.list(id), watching, minutes));
  }
}

function allowed(request: IncomingMessage, response: ServerResponse, methods: readonly string[]): string {
  if (request.method !== undefined && methods.includes(request.method)) return request.method;
  response.setHeader("allow", methods.join(", "));
  throw new ApiError("method_not_allowed");
}

function readQuery<Schema extends z.ZodType>(schema: Schema, query: string): z.output<Schema> {
  const read = schema.safeParse(Object.fromEntries(new URLSearchParams(query)));
  if (!read.success) throw apiErrorOfZod(read.error);
  return read.data;
}

function summaryOf(list: WatchList, watching: Watching): object {
  const idle = watching.idleReason(list);
  return {
    ...list.definition,
    layer: watching.saeOf(list)?.layer ?? null,
    state: idle === null ? "watching" : "idle",
    ...(idle === null ? {} : { reason: idle }),
    since_ms: list.sinceMs,
  };
}

function statisticsOf(list: WatchList, watching: Watching, minutes: number): object {
  const nowMs = watching.nowMs();
  const { features, ...totals } = list.windows.totals(minutes, nowMs);
  const notes = watching.saeOf(list)?.notes;
  return {
    ...summaryOf(list, watching),
    at_ms: nowMs,
    window: { minutes, bucket_ms: BUCKET_MS },
    ...totals,
    features: features.map((one) => ({ ...one, label: notes?.get(one.index)?.label ?? null })),
    buckets: list.windows.series(minutes, nowMs),
    events: { total: list.history.lastSequence, suppressed: list.suppressed },
  };
}

interface Exchanged {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly deps: WatchRouteDeps;
}

function answerEvents(
  { history, sinceMs }: WatchList,
  query: z.output<typeof eventsQuery>,
  { request, response, deps }: Exchanged,
) {
  const streams =
    query.stream === undefined ? /\btext\/event-stream\b/.test(request.headers.accept ?? "") : query.stream === "true";
  if (!streams) {
    const after = query.after ?? 0;
    const data = history.after(after, query.limit);
    const last = data.at(-1)?.sequence ?? after;
    sendJson(response, 200, { object: "list", data, has_more: last < history.lastSequence });
    return;
  }
  if (history.listenerCount >= MAX_STREAMS) {
    throw new ApiError("engine_busy", { source: "backend", message: "Too many readers follow this watch list." });
  }
  response.writeHead(200, SSE_HEADERS);
  const lastEventId = request.headersDistinct["last-event-id"]?.[0];
  const stop = streamEvents({
    history,
    epoch: sinceMs,
    afterSequence: query.after ?? sequenceAfter(lastEventId, sinceMs),
    writer: response,
    clock: deps.clock,
  });
  response.once("close", stop);
}
