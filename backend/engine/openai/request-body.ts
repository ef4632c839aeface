import { z } from "zod";
import { ApiError } from "../../../shared/errors/api-error.ts";

/** A request body that is a JSON object; nothing else is known of it yet. */
export type RequestBody = Readonly<Record<string, unknown>>;

const objectSchema = z.record(z.string(), z.unknown());

/** Reads the bytes of a body. Anything but one JSON object in valid UTF-8 is a 400. */
export function readRequestBody(bytes: Uint8Array): RequestBody {
  let document: unknown;
  try {
    document = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new ApiError("invalid_json", { cause });
  }
  const read = objectSchema.safeParse(document);
  if (!read.success) throw new ApiError("invalid_body");
  if (nestsBeyond(read.data, MAX_DEPTH)) {
    throw new ApiError("invalid_body", { message: `The body is nested more than ${MAX_DEPTH} levels deep.` });
  }
  return read.data;
}

/** Templates and schemas are walked recursively, in native code too. */
const MAX_DEPTH = 64;

function nestsBeyond(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  return Object.values(value).some((member) => nestsBeyond(member, levels - 1));
}

/** Refuses a body that asks for another model than the one loaded. A missing name is the schema's to refuse. */
export function checkModelName(body: RequestBody, served: string): void {
  const asked = body["model"];
  if (typeof asked !== "string" || asked === "" || asked === served) return;
  throw new ApiError("model_not_found", {
    message: `The model '${asked.slice(0, 200)}' is not served here.`,
    param: "model",
  });
}
