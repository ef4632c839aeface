// The four measurements of a gateway from the client's side. A target is { origin, headers }.
import { Agent, request as httpRequest } from "node:http";
import autocannon from "autocannon";

const PATH = "/v1/chat/completions";

/** Milliseconds of the monotonic clock that all processes of a machine share. */
export const nowMs = () => Number(process.hrtime.bigint()) / 1e6;

export const percentile = (values, share) => {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
};

export const median = (values) => percentile(values, 0.5);

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const bodyOf = (more) =>
  JSON.stringify({ model: "mock", messages: [{ role: "user", content: "hello" }], max_tokens: 16, ...more });

const headersOf = (target) => ({ "content-type": "application/json", ...target.headers });

/**
 * By number, not by time: V8 compiles what was called often enough, which on a busy machine takes long, and it is the
 * state after that which serves.
 */
export async function warmUp(target, { requests }) {
  await load(target, { connections: 16, amount: requests });
}

/** Requests per second, whole answers, closed loop. Any answer but a 2xx fails the bench. */
export async function requestsPerSecond(target, { connections, seconds }) {
  const result = await load(target, { connections, duration: seconds });
  return { answers: result["2xx"], perSecond: result["2xx"] / result.duration, p99Ms: result.latency.p99 };
}

async function load(target, extent) {
  const result = await autocannon({
    url: `${target.origin}${PATH}`,
    method: "POST",
    headers: headersOf(target),
    body: bodyOf({}),
    ...extent,
  });
  if (result.non2xx + result.errors > 0)
    throw new Error(`${target.name}: ${result.non2xx} answers that are no success, ${result.errors} broken`);
  return result;
}

/** Opens one stream; `onText` gets what comes, and may destroy it. Resolves when it has ended, however. */
function openStream(target, { agent, user, onText }) {
  return new Promise((resolve, reject) => {
    const body = bodyOf({ stream: true, stream_options: { include_usage: true }, user });
    const outgoing = httpRequest(
      `${target.origin}${PATH}`,
      { method: "POST", agent, headers: { ...headersOf(target), "content-length": Buffer.byteLength(body) } },
      (answer) => {
        if (answer.statusCode !== 200) {
          answer.resume();
          reject(new Error(`${target.name}: a stream was answered ${answer.statusCode}`));
          return;
        }
        answer.setEncoding("utf8");
        answer.on("data", (text) => onText(text, outgoing));
        answer.once("close", resolve);
      },
    );
    outgoing.once("error", (error) => (outgoing.destroyed ? resolve() : reject(error)));
    outgoing.end(body);
  });
}

/** Milliseconds from the request to the first piece of the answer's body, `lanes` streams at a time. */
export async function firstPieceMs(target, { streams, lanes }) {
  const agent = new Agent({ keepAlive: true, maxSockets: lanes });
  const times = [];
  let left = streams;
  const lane = async () => {
    while (left-- > 0) {
      const startedMs = nowMs();
      let firstMs = null;
      await openStream(target, { agent, user: "chunks=20,every=5", onText: () => (firstMs ??= nowMs() - startedMs) });
      if (firstMs === null) throw new Error(`${target.name}: a stream brought nothing`);
      times.push(firstMs);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  agent.destroy();
  return times;
}

let lastAbort = 0;

/** Milliseconds from the client's hanging up to the mock's connection closing; null for a stream that ran to its end. */
export async function abortMs(target, mock, { streams }) {
  const agent = new Agent({ keepAlive: true });
  const leftAt = new Map();
  for (let count = 0; count < streams; count++) {
    const id = `a${++lastAbort}`;
    let pieces = 0;
    await openStream(target, {
      agent,
      user: `chunks=100,every=20,id=${id}`,
      onText: (_, outgoing) => {
        if (++pieces < 3 || leftAt.has(id)) return;
        leftAt.set(id, nowMs());
        outgoing.destroy();
      },
    });
  }
  await pause(2_500);
  agent.destroy();
  const answer = await fetch(`${mock.origin}/bench/aborts`);
  const seen = await answer.json();
  return [...leftAt].map(([id, fromMs]) => (seen[id] === undefined ? null : seen[id] - fromMs));
}

/** Opens many streams at once and counts every event of each, in order. */
export async function manyStreams(target, mock, { streams, chunks, everyMs }) {
  const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  await fetch(`${mock.origin}/bench/peak`);
  const result = { streams, peak: 0, events: 0, lost: 0, broken: 0, why: null };
  const one = async () => {
    let text = "";
    try {
      await openStream(target, { agent, user: `chunks=${chunks},every=${everyMs}`, onText: (more) => (text += more) });
    } catch (error) {
      result.broken++;
      result.why = error.message;
    }
    const events = text.split("\n\n").filter((part) => part.startsWith("data: "));
    const words = events.flatMap((part) => /"content":"w(\d+) "/.exec(part)?.[1] ?? []);
    const inOrder = words.every((word, place) => Number(word) === place);
    const tail = [/"finish_reason":"stop"/, /"usage":\{/, /^data: \[DONE\]$/];
    const ends = tail.filter((mark) => events.some((part) => mark.test(part))).length;
    result.events += events.length;
    result.lost += chunks + tail.length - (inOrder ? words.length : 0) - ends;
  };
  await Promise.all(
    Array.from({ length: streams }, async (_, place) => {
      // Not all in the same tick, as a listen queue is finite.
      await pause(Math.floor(place / 100) * 25);
      await one();
    }),
  );
  agent.destroy();
  const answer = await fetch(`${mock.origin}/bench/peak`);
  result.peak = (await answer.json()).peak;
  return result;
}
