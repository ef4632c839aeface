import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, SignJWT } from "jose";
import { z } from "zod";
import { ANSWER_SIGNATURE_TYPE } from "../../shared/protocol/answer-signature.ts";
import { TOKEN_ALGORITHM, TOKEN_LIFETIME_SECONDS } from "../../shared/protocol/inference-token.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { AnswerSigner, Signer } from "../ports/signer.ts";

/** The edge's private key as a JWK (RFC 8037). A secret. */
export const signingKeySchema = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string().min(1),
  d: z.string().min(1),
  /** RFC 7638 thumbprint of the public half. */
  kid: z.string().min(1),
});
export type SigningKey = z.infer<typeof signingKeySchema>;

/** What is kept: the first key signs, all are published, so that a new one is known before it signs. */
export const signingKeySetSchema = z.object({ keys: z.array(signingKeySchema).min(1).max(2) });
export type SigningKeySet = z.infer<typeof signingKeySetSchema>;

export async function newSigningKey(): Promise<SigningKey> {
  const { privateKey } = await generateKeyPair(TOKEN_ALGORITHM, { crv: "Ed25519", extractable: true });
  const jwk = await exportJWK(privateKey);
  return signingKeySchema.parse({ ...jwk, kid: await calculateJwkThumbprint(jwk) });
}

export async function createSigner(options: {
  readonly edge: string;
  readonly keys: SigningKeySet;
  readonly clock: Pick<Clock, "nowMs">;
}): Promise<Signer & AnswerSigner> {
  const { edge, clock } = options;
  const [signing] = options.keys.keys;
  // Of two the older, which hosts know: so an answer introduces the newer one, which signs all requests already.
  const vouching = options.keys.keys.at(-1);
  if (signing === undefined || vouching === undefined) throw new Error("no signing key");
  const privateKey = await importJWK(signing, TOKEN_ALGORITHM);
  const vouchingKey = await importJWK(vouching, TOKEN_ALGORITHM);
  const publicKeys = options.keys.keys.map(({ kty, crv, x, kid }) => ({ kty, crv, x, kid }));
  return {
    edge,
    sign(claims) {
      const iat = Math.floor(clock.nowMs() / 1_000);
      return new SignJWT({ ...claims, iss: edge, iat, exp: iat + TOKEN_LIFETIME_SECONDS })
        .setProtectedHeader({ alg: TOKEN_ALGORITHM, kid: signing.kid, typ: "JWT" })
        .sign(privateKey);
    },
    signAnswer: (claims) =>
      new SignJWT({ ...claims, iss: edge })
        .setProtectedHeader({ alg: TOKEN_ALGORITHM, kid: vouching.kid, typ: ANSWER_SIGNATURE_TYPE })
        .sign(vouchingKey),
    publicKeys: () => publicKeys,
  };
}
