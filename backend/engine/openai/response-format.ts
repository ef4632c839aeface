import { ApiError } from "../../../shared/errors/api-error.ts";
import type { NativeModel } from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import type { EngineModel } from "../engine-model.ts";
import { countFault } from "./grammar-counts.ts";
import { plainWords } from "./library-words.ts";
import type { ResponseFormat } from "./request-schemas.ts";
import { senselessLevel } from "./schema-sense.ts";

/** The grammar that holds an answer to its format; empty for free text. */
export function grammarOf(format: ResponseFormat | null | undefined, model: NativeModel): string {
  const schema = schemaOf(format);
  if (schema === null) return "";
  try {
    const fault = unenforceable(schema, (pattern) => isKept(pattern, model));
    if (fault !== null) throw refusal(fault);
    const grammar = model.grammarFromSchema(JSON.stringify(schema));
    const counts = countFault(grammar);
    if (counts !== null) throw refusal(counts);
    model.checkGrammar(grammar, "root");
    return grammar;
  } catch (thrown) {
    if (nativeErrorCode(thrown) !== "grammar_invalid") throw thrown;
    throw refusal(plainWords(thrown instanceof Error ? thrown.message : ""), thrown);
  }
}

/** The schema that an answer must keep to, or null for free text. */
export function schemaOf(format: ResponseFormat | null | undefined): object | null {
  if (format === null || format === undefined || format.type === "text") return null;
  return format.type === "json_object" ? { type: "object" } : (format.json_schema.schema ?? { type: "object" });
}

/** The library reads a group by recursion: deep enough, it overflows the stack and ends the process. */
const MAX_GROUPS = 1_000;

/** A caller's own grammar. One that does not parse is refused here, and not while it is used. */
export function checkedGrammar(
  grammar: string | null | undefined,
  model: Pick<EngineModel, "native" | "allowsGrammar">,
): string {
  if (grammar === null || grammar === undefined) return "";
  if (!model.allowsGrammar) {
    const message = "'grammar' is not allowed on this machine; 'response_format' with a schema is.";
    throw new ApiError("unsupported_field", { message, param: "grammar" });
  }
  // Counted wherever they stand, so that no way of writing literals hides one.
  if (grammar.split("(").length - 1 > MAX_GROUPS) {
    const message = `'grammar' cannot be used: it has more than ${MAX_GROUPS} opening parentheses.`;
    throw new ApiError("invalid_value", { message, param: "grammar" });
  }
  const counts = countFault(grammar);
  if (counts !== null) {
    throw new ApiError("invalid_value", { message: `'grammar' cannot be used: ${counts}`, param: "grammar" });
  }
  try {
    model.native.checkGrammar(grammar, "root");
    return grammar;
  } catch (thrown) {
    if (nativeErrorCode(thrown) !== "grammar_invalid") throw thrown;
    const why = plainWords(thrown instanceof Error ? thrown.message : "");
    throw new ApiError("invalid_value", {
      message: `'grammar' cannot be used: ${why}`,
      param: "grammar",
      cause: thrown,
    });
  }
}

function refusal(why: string, cause?: unknown): ApiError {
  return new ApiError("invalid_response_format", {
    message: `The schema cannot be turned into a grammar: ${why}`,
    param: "response_format",
    cause,
  });
}

/** Members that hold values, not schemas. */
const VALUES = new Set(["enum", "const", "default", "examples"]);

/** Members that name schemas, whose names are the caller's. */
const MAPS = new Set(["properties", "patternProperties", "$defs", "definitions"]);
/** Members that are lists of choices: none is no schema that anything could satisfy. */
const CHOICES = new Set(["enum", "anyOf", "oneOf", "allOf"]);

/** Rules for which libllama-common makes no grammar, and which it drops without a word. */
const DROPPED = new Set([
  "multipleOf",
  "uniqueItems",
  "not",
  "patternProperties",
  "minProperties",
  "maxProperties",
  "propertyNames",
  "contains",
  "minContains",
  "maxContains",
  "if",
  "then",
  "else",
  "dependentRequired",
  "dependentSchemas",
  "dependencies",
  "unevaluatedProperties",
  "unevaluatedItems",
]);
/** Bounds that hold for integers only. */
const INTEGER_BOUNDS = new Set(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]);
const FORMATS = new Set(["date", "time", "date-time", "uuid"]);

function droppedRule(name: string, member: unknown, type: unknown): string | null {
  if (DROPPED.has(name) && member !== false) return `'${name}' cannot be kept by a grammar`;
  if (INTEGER_BOUNDS.has(name) && type !== "integer") return `'${name}' can be kept for integers only`;
  if (name === "format" && typeof member === "string" && !FORMATS.has(member)) {
    return `the format ${JSON.stringify(member)} cannot be kept by a grammar; ${[...FORMATS].join(", ")} can`;
  }
  return null;
}

/** A pattern with something that the conversion does not know, such as \d, becomes any string at all. */
function isKept(pattern: string, model: NativeModel): boolean {
  return !/^root ::= string$/mu.test(model.grammarFromSchema(JSON.stringify({ type: "string", pattern })));
}

type IsKept = (pattern: string) => boolean;

function unenforceableIn(schemas: unknown, kept: IsKept): string | null {
  if (typeof schemas !== "object" || schemas === null) return null;
  for (const schema of Object.values(schemas)) {
    const fault = unenforceable(schema, kept);
    if (fault !== null) return fault;
  }
  return null;
}

/** What the conversion would drop without an error, and an answer must not pretend to keep. */
function unenforceable(schema: unknown, kept: IsKept): string | null {
  if (typeof schema !== "object" || schema === null) return null;
  const senseless = Array.isArray(schema) ? null : senselessLevel(schema);
  if (senseless !== null) return senseless;
  for (const [name, member] of Object.entries(schema)) {
    const dropped = droppedRule(name, member, Reflect.get(schema, "type"));
    if (dropped !== null) return dropped;
    if (name === "pattern" && typeof member === "string" && !/^\^.*\$$/su.test(member)) {
      return `the pattern ${JSON.stringify(member)} must begin with ^ and end with $`;
    }
    if (name === "pattern" && typeof member === "string" && !kept(member)) {
      return `the pattern ${JSON.stringify(member)} has something that no grammar is made of; classes such as [0-9] work`;
    }
    if (name === "$ref" && typeof member === "string" && !member.startsWith("#/")) {
      return `the reference ${JSON.stringify(member)} does not point into the schema`;
    }
    if (CHOICES.has(name) && (!Array.isArray(member) || member.length === 0)) {
      return `'${name}' must be a list that is not empty`;
    }
    const fault = VALUES.has(name)
      ? null
      : MAPS.has(name)
        ? unenforceableIn(member, kept)
        : unenforceable(member, kept);
    if (fault !== null) return fault;
  }
  return null;
}
