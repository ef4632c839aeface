import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import { ANSWER_SIGNATURE_HEADER } from "../../../shared/protocol/answer-signature.ts";
import type { Answer } from "../../../shared/protocol/answer.ts";
import { reportSchema } from "../../../shared/protocol/report.ts";
import { isProtocolAccepted, PROTOCOL_VERSION } from "../../../shared/protocol/version.ts";
import { sha256 } from "../../accounts/sha256.ts";
import { crossesInTheClear } from "../../config.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { DesiredState } from "../../ports/fleet.ts";
import { bearerCredential } from "../bearer.ts";
import type { HttpContext } from "../environment.ts";
import { readJsonObject } from "../read-json.ts";

/** Where hosts report. */
export const REPORTS_PATH = "/agent/v1/reports";
/** Largest report: thousands of ended requests and hundreds of replicas. */
const MAX_REPORT_BYTES = 4 * 2 ** 20;

/** Takes the report of an enrolled host, acknowledges what is safe in the journal, and tells the keys to accept. */
export function reportsRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const host = await deps.hostAuthenticator.authenticateHost(bearerCredential(c.req.header("authorization")));
    const { object, text } = await readJsonObject(c.req.raw, MAX_REPORT_BYTES);
    const result = reportSchema.safeParse(object);
    if (!result.success) throw apiErrorOfZod(result.error);
    const report = result.data;
    if (!isProtocolAccepted(report.protocol)) {
      throw new ApiError("invalid_value", {
        message: `This edge speaks protocol ${PROTOCOL_VERSION} and the one before it; update the edge first.`,
        param: "protocol",
      });
    }
    if (report.host !== host) {
      throw new ApiError("permission_denied", {
        message: "The enrolment token belongs to another host.",
        param: "host",
      });
    }
    if (crossesInTheClear(report.url) && !deps.settings.insecure) {
      throw new ApiError("invalid_value", {
        message: "Plain HTTP off loopback is refused unless the edge is set to 'insecure: true'.",
        param: "url",
      });
    }
    const accepted = await deps.fleet.accept(report);
    const answer: Answer = {
      protocol: PROTOCOL_VERSION,
      edge: deps.settings.edge,
      ack_seq: accepted.ack_seq,
      ack_ended: [...(await deps.ledger.acceptReport(host, report.ended, report.counters))],
      ask_ended: [...(await deps.ledger.askedOf(host))],
      edge_time: deps.clock.nowMs(),
      keys: [...deps.signer.publicKeys()],
      ...standsInFor(deps),
      report_every_ms: accepted.report_every_ms,
      desired: ordered(accepted.desired, deps.placementLease()),
    };
    const body = JSON.stringify(answer);
    const [reportSha256, answerSha256] = await Promise.all([sha256(text), sha256(body)]);
    const signature = await deps.signer.signAnswer({
      aud: host,
      report_sha256: reportSha256,
      answer_sha256: answerSha256,
    });
    return c.body(body, 200, { "content-type": "application/json", [ANSWER_SIGNATURE_HEADER]: signature });
  };
}

/** Only the edge that holds the placement lease tells a host what to hold, under the lease's number. */
function ordered(desired: DesiredState | null, leaseNumber: number | null): Answer["desired"] {
  return desired === null || leaseNumber === null ? null : { lease_number: leaseNumber, ...desired };
}

function standsInFor({ standsInFor: dead }: EdgeDeps): Pick<Answer, "stands_in_for"> {
  const names = dead?.() ?? [];
  return names.length === 0 ? {} : { stands_in_for: [...names] };
}
