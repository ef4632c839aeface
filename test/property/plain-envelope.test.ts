import { array, assert, boolean, constant, constantFrom, oneof, property, tuple } from "fast-check";
import { expect, it } from "vitest";
import { plainEnvelope } from "../../shared/openai/plain-envelope.ts";
import { requestEnvelopeSchema } from "../../shared/openai/request-envelope.ts";

const some = oneof(
  constant(null),
  boolean(),
  constantFrom(0, 1, 2, 128, 129, -1, 1.5, 2 ** 53 - 1, 2 ** 53, 1e300),
  constantFrom("", "m", "1"),
  constantFrom([], {}, [1], { include_usage: true }, { include_usage: 1 }, { include_usage: null, more: 2 }),
);
const NAMES = [
  "model",
  "stream",
  "stream_options",
  "max_tokens",
  "max_completion_tokens",
  "n",
  "steering",
  "profile",
  "steering_intensity",
  "return_sae_activations",
  "messages",
];
const PLAIN = { model: "m", messages: [], stream: true, max_tokens: 5, n: 2 };
/** A request that is plain but for one or two members, which may be anything. */
const object = tuple(
  constantFrom({ model: "m" }, PLAIN, {}),
  array(tuple(constantFrom(...NAMES), some), { maxLength: 2 }),
).map(([base, members]): Record<string, unknown> => ({ ...base, ...Object.fromEntries(members) }));

it("takes at a glance only what the schema takes too, and leaves it as it is", () => {
  let taken = 0;
  assert(
    property(object, (value) => {
      const plain = plainEnvelope(value);
      if (plain === null) return;
      taken++;
      expect(requestEnvelopeSchema.parse(value)).toEqual(plain);
    }),
    { numRuns: 3_000 },
  );
  expect(taken).toBeGreaterThan(50);
});

it("takes the requests that clients send most", () => {
  const request = { model: "m", messages: [{ role: "user", content: "hi" }] };
  const stream = { ...request, stream: true, stream_options: { include_usage: true }, max_tokens: 5, n: 1 };
  expect(plainEnvelope(request)).toBe(request);
  expect(plainEnvelope(stream)).toBe(stream);
  expect(plainEnvelope({ ...request, steering: [] })).toBeNull();
});
