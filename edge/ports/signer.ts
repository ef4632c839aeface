import type { AnswerClaims } from "../../shared/protocol/answer-signature.ts";
import type { EdgeKey } from "../../shared/protocol/answer.ts";
import type { InferenceClaims } from "../../shared/protocol/inference-token.ts";

/** Signs requests to hosts with the edge's Ed25519 key (JWT, EdDSA, `kid` in the header). */
export interface Signer {
  /** The edge's name: `iss`. */
  readonly edge: string;
  sign(claims: Omit<InferenceClaims, "iss" | "iat" | "exp">): Promise<string>;
  /** What hosts must accept; two while one replaces the other. */
  publicKeys(): readonly EdgeKey[];
}

/** Signs answers to reports, by which hosts know that nobody on the way wrote or altered them. */
export interface AnswerSigner extends Pick<Signer, "publicKeys"> {
  signAnswer(claims: Omit<AnswerClaims, "iss">): Promise<string>;
}
