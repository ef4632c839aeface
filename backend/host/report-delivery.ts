import { createHash } from "node:crypto";
import { type Dispatcher, request } from "undici";
import { z } from "zod";
import { ANSWER_SIGNATURE_HEADER } from "../../shared/protocol/answer-signature.ts";
import { type Answer, answerSchema } from "../../shared/protocol/answer.ts";
import type { Report } from "../../shared/protocol/report.ts";

const REPORTS_PATH = "/agent/v1/reports";
const DELIVERY_TIMEOUT_MS = 5_000;
const MAX_ANSWER_LENGTH = 8 * 2 ** 20;
const MAX_WORDS_LENGTH = 300;

const refusalSchema = z.object({ error: z.object({ message: z.string() }) });

/** An answer, and what can prove whose it is and to which report. */
export interface DeliveredReport {
  readonly answer: Answer;
  /** Null: the answer is not signed. */
  readonly signature: string | null;
  /** Hex, of the bodies as they crossed the wire. */
  readonly reportSha256: string;
  readonly answerSha256: string;
}

/** Sends one report to one edge. Rejects with a message that is fit for the log and holds no secret. */
export async function deliverReport(options: {
  readonly server: string;
  readonly token: string;
  readonly report: Report;
  readonly dispatcher: Dispatcher;
}): Promise<DeliveredReport> {
  const body = JSON.stringify(options.report);
  const response = await request(`${options.server}${REPORTS_PATH}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${options.token}` },
    body,
    signal: AbortSignal.timeout(DELIVERY_TIMEOUT_MS),
    dispatcher: options.dispatcher,
  });
  const text = await textOf(response.body);
  if (response.statusCode !== 200) throw new Error(refusalText(response.statusCode, text));
  const signature = response.headers[ANSWER_SIGNATURE_HEADER];
  return {
    answer: answerSchema.parse(JSON.parse(text)),
    signature: typeof signature === "string" ? signature : null,
    reportSha256: hexSha256(body),
    answerSha256: hexSha256(text),
  };
}

const hexSha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MAX_ANSWER_LENGTH) throw new Error("the edge's answer is too long");
  }
  return text;
}

/** The edge's refusal with its own words, and what to do about it where that is known. */
function refusalText(status: number, text: string): string {
  if (status === 401)
    return "the edge refused the enrolment token; 'steerage hosts enroll' on the edge's machine makes a new one";
  if (status === 403)
    return "the enrolment token is another host's; 'steerage hosts enroll' with this node_id makes one for this host";
  return `the edge answered with status ${status}${wordsOf(text)}`;
}

function wordsOf(text: string): string {
  try {
    return `: ${refusalSchema.parse(JSON.parse(text)).error.message.slice(0, MAX_WORDS_LENGTH)}`;
  } catch {
    return "";
  }
}
