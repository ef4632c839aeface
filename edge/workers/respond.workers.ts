import type { Respond } from "../deps.ts";
import { streamResponseWriter } from "../web/response-writer.stream.ts";

/** Answers through a stream that the runtime sends while the request goes on behind it. */
export function respondOnWorkers(context: ExecutionContext): Respond {
  return ({ request }, run) => {
    const { writer, response } = streamResponseWriter(request.signal);
    context.waitUntil(run(writer));
    return response;
  };
}
