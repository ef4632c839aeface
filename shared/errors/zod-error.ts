import type { z } from "zod";
import { ApiError } from "./api-error.ts";

/** `["messages", 0, "role"]` as `messages[0].role`. */
export function paramOf(path: readonly PropertyKey[]): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else text += text === "" ? String(step) : `.${String(step)}`;
  }
  return text;
}

/**
 * The first fault that a schema found, as a 400 that names the member. Faults inside a union are followed to the
 * branch that got deepest, since "invalid input" helps nobody.
 */
export function apiErrorOfZod(error: z.ZodError): ApiError {
  const issue = error.issues[0];
  if (issue === undefined) return new ApiError("invalid_value");
  const { path, message, missing } = deepest(issue, []);
  const param = paramOf(path);
  if (missing) {
    return new ApiError("missing_field", {
      message: param === "" ? "A value is required." : `'${param}' is required.`,
      param,
    });
  }
  return new ApiError("invalid_value", { message: param === "" ? message : `'${param}': ${message}`, param });
}

interface Fault {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly missing: boolean;
}

function deepest(issue: z.core.$ZodIssue, prefix: readonly PropertyKey[]): Fault {
  const path = [...prefix, ...issue.path];
  if (issue.code === "invalid_union") {
    let best: Fault | null = null;
    for (const branch of issue.errors) {
      const first = branch[0];
      if (first === undefined) continue;
      const fault = deepest(first, path);
      if (best === null || fault.path.length > best.path.length) best = fault;
    }
    if (best !== null && best.path.length > path.length) return best;
  }
  const missing =
    issue.code === "invalid_type" && issue.input === undefined && issue.message.endsWith("received undefined");
  return { path, message: issue.message, missing };
}
