import type { RequestEnvelope } from "./request-envelope.ts";

/**
 * The object itself where a glance shows that `requestEnvelopeSchema` takes it as it is: nothing steers or senses, and
 * the few other members are right. Null says nothing: let the schema judge. Nearly all requests are of this kind, and a
 * schema costs more than the rest of reading them; a property test keeps the two together.
 */
export function plainEnvelope(object: Readonly<Record<string, unknown>>): RequestEnvelope | null {
  return isPlain(object) ? object : null;
}

function isPlain(object: Readonly<Record<string, unknown>>): object is RequestEnvelope {
  return (
    typeof object["model"] === "string" &&
    object["model"] !== "" &&
    isSwitch(object["stream"]) &&
    isStreamOptions(object["stream_options"]) &&
    isCount(object["max_tokens"], Number.MAX_SAFE_INTEGER) &&
    isCount(object["max_completion_tokens"], Number.MAX_SAFE_INTEGER) &&
    isCount(object["n"], 128) &&
    isAbsent(object["steering"]) &&
    isAbsent(object["profile"]) &&
    isAbsent(object["steering_intensity"]) &&
    isAbsent(object["return_sae_activations"])
  );
}

const isAbsent = (value: unknown): boolean => value === undefined || value === null;
const isSwitch = (value: unknown): boolean => typeof value === "boolean" || isAbsent(value);

function isCount(value: unknown, most: number): boolean {
  return isAbsent(value) || (typeof value === "number" && Number.isSafeInteger(value) && value >= 1 && value <= most);
}

function isStreamOptions(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return (
    typeof value === "object" && !Array.isArray(value) && (!("include_usage" in value) || isSwitch(value.include_usage))
  );
}
