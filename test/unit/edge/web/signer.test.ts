import { decodeProtectedHeader, importJWK, jwtVerify } from "jose";
import { describe, expect, it } from "vitest";
import { createSigner, newSigningKey } from "../../../../edge/web/signer.jose.ts";
import { inferenceClaimsSchema } from "../../../../shared/protocol/inference-token.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const claims = {
  aud: "gpu-1",
  jti: "req_1.1",
  method: "POST",
  path: "/v1/chat/completions",
  body_sha256: "00",
  request_id: "req_1",
  attempt: 1,
  replica: "r",
  cache_salt: "p",
};

describe("the edge's signature", () => {
  it("is one that the published key proves, for half a minute", async () => {
    const clock = new ManualClock();
    const keys = { keys: [await newSigningKey(), await newSigningKey()] };
    const signer = await createSigner({ edge: "edge-1", keys, clock });
    const token = await signer.sign(claims);
    const [published, next] = signer.publicKeys();
    expect(decodeProtectedHeader(token)).toEqual({ alg: "EdDSA", kid: published?.kid, typ: "JWT" });
    const verify = async (key: object | undefined) =>
      jwtVerify(token, await importJWK({ ...key }, "EdDSA"), {
        algorithms: ["EdDSA"],
        currentDate: new Date(clock.nowMs()),
      });
    const { payload } = await verify(published);
    const read = inferenceClaimsSchema.parse(payload);
    expect(read).toMatchObject({ ...claims, iss: "edge-1" });
    expect(read.exp - read.iat).toBe(30);
    await expect(verify(next)).rejects.toThrow(/signature/);
    clock.advance(31_000);
    await expect(verify(published)).rejects.toThrow(/exp/);
  });

  it("publishes no private part", async () => {
    const keys = { keys: [await newSigningKey()] };
    const signer = await createSigner({ edge: "edge-1", keys, clock: new ManualClock() });
    expect(Object.keys(signer.publicKeys()[0] ?? {}).toSorted()).toEqual(["crv", "kid", "kty", "x"]);
  });
});
