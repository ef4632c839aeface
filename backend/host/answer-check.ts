import { decodeProtectedHeader, jwtVerify } from "jose";
import { ANSWER_SIGNATURE_TYPE, answerClaimsSchema } from "../../shared/protocol/answer-signature.ts";
import type { EdgeKey } from "../../shared/protocol/answer.ts";
import { TOKEN_ALGORITHM } from "../../shared/protocol/inference-token.ts";
import type { VerificationKey } from "./edge-keys.ts";
import type { DeliveredReport } from "./report-delivery.ts";

/**
 * Why a delivered answer proves nothing; null when one of the keys signed this answer, to this very report, for this
 * host.
 */
export async function whyUnproven(
  delivered: DeliveredReport,
  host: string,
  keys: readonly EdgeKey[],
  importKey: (key: EdgeKey) => Promise<VerificationKey>,
): Promise<string | null> {
  const { answer, signature } = delivered;
  if (signature === null) return "it is not signed";
  try {
    const { kid } = decodeProtectedHeader(signature);
    const key = keys.find((candidate) => candidate.kid === kid);
    if (key === undefined) return "it is signed by no key that is trusted here";
    const { payload } = await jwtVerify(signature, await importKey(key), {
      algorithms: [TOKEN_ALGORITHM],
      typ: ANSWER_SIGNATURE_TYPE,
      audience: host,
      issuer: answer.edge,
    });
    const claims = answerClaimsSchema.parse(payload);
    if (claims.report_sha256 !== delivered.reportSha256) return "it answers another report";
    if (claims.answer_sha256 !== delivered.answerSha256) return "it was altered on the way";
    return null;
  } catch {
    return "its signature does not hold";
  }
}
