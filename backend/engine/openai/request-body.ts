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
  return read.data;
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
