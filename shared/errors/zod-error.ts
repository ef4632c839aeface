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
 * branch that the value comes closest to, since "invalid input" helps nobody.
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

/** A branch of a union that a value does not fit, by its first fault. */
interface Miss {
  readonly issue: z.core.$ZodIssue;
  /** How little of a mismatch it is: 0 where the value is of another type altogether. */
  readonly closeness: number;
}

function deepest(issue: z.core.$ZodIssue, prefix: readonly PropertyKey[]): Fault {
  const path = [...prefix, ...issue.path];
  if (issue.code === "invalid_union") {
    const misses = issue.errors.flatMap(([first]): Miss[] =>
      first === undefined ? [] : [{ issue: first, closeness: closenessOf(first) }],
    );
    const best = misses.toSorted((a, b) => b.closeness - a.closeness || farther(b.issue.path, a.issue.path))[0];
    if (best !== undefined && best.closeness > 0) return deepest(best.issue, path);
    if (best !== undefined) return { path, message: otherType(misses), missing: isMissing(best.issue) };
  }
  return { path, message: issue.message, missing: isMissing(issue) };
}

/** A value that is right but for a bound is closer than one with a wrong part, that closer than another value. */
function closenessOf({ code, path }: z.core.$ZodIssue): number {
  if (code === "invalid_type") return path.length === 0 ? 0 : 2;
  return code === "invalid_value" && path.length === 0 ? 1 : 3;
}

/** Whichever fault stands later in the value had more before it that fits. */
function farther(a: readonly PropertyKey[], b: readonly PropertyKey[]): number {
  for (const [at, step] of a.entries()) {
    const other = b[at];
    if (other === undefined) return 1;
    if (typeof step === "number" && typeof other === "number" && step !== other) return step - other;
  }
  return a.length - b.length;
}

const RECEIVED = ", received ";

/** All types that would do, in one sentence. */
function otherType(misses: readonly Miss[]): string {
  const expected = new Set(misses.map(({ issue }) => ("expected" in issue ? String(issue.expected) : "")));
  const received = misses[0]?.issue.message.split(RECEIVED)[1] ?? "another type";
  return `Invalid input: expected ${[...expected].filter((type) => type !== "").join(" or ")}${RECEIVED}${received}`;
}

function isMissing(issue: z.core.$ZodIssue): boolean {
  return issue.code === "invalid_type" && issue.input === undefined && issue.message.endsWith("received undefined");
}
