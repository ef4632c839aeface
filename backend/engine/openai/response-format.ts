import { ApiError } from "../../../shared/errors/api-error.ts";
import type { NativeModel } from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import type { ResponseFormat } from "./request-schemas.ts";

/** The grammar that holds an answer to its format; empty for free text. */
export function grammarOf(format: ResponseFormat | null | undefined, model: NativeModel): string {
  if (format === null || format === undefined || format.type === "text") return "";
  const schema = format.type === "json_object" ? { type: "object" } : (format.json_schema.schema ?? { type: "object" });
  try {
    return model.grammarFromSchema(JSON.stringify(schema));
  } catch (thrown) {
    if (nativeErrorCode(thrown) !== "grammar_invalid") throw thrown;
    const said = thrown instanceof Error ? thrown.message : "";
    throw new ApiError("invalid_response_format", {
      message: `The schema cannot be turned into a grammar: ${said}`,
      param: "response_format",
      cause: thrown,
    });
  }
}
