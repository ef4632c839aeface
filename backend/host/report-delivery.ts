import { type Dispatcher, request } from "undici";
import { type Answer, answerSchema } from "../../shared/protocol/answer.ts";
import type { Report } from "../../shared/protocol/report.ts";

const REPORTS_PATH = "/agent/v1/reports";
const DELIVERY_TIMEOUT_MS = 5_000;
const MAX_ANSWER_LENGTH = 8 * 2 ** 20;

/** Sends one report to one edge. Rejects with a message that is fit for the log and holds no secret. */
export async function deliverReport(options: {
  readonly server: string;
  readonly token: string;
  readonly report: Report;
  readonly dispatcher: Dispatcher;
}): Promise<Answer> {
  const response = await request(`${options.server}${REPORTS_PATH}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${options.token}` },
    body: JSON.stringify(options.report),
    signal: AbortSignal.timeout(DELIVERY_TIMEOUT_MS),
    dispatcher: options.dispatcher,
  });
  if (response.statusCode !== 200) {
    await response.body.dump();
    if (response.statusCode === 401) throw new Error("the edge refused the enrolment token");
    throw new Error(`the edge answered with status ${response.statusCode}`);
  }
  let text = "";
  const decoder = new TextDecoder();
  const body: AsyncIterable<Uint8Array> = response.body;
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_ANSWER_LENGTH) throw new Error("the edge's answer is too long");
  }
  return answerSchema.parse(JSON.parse(text));
}
