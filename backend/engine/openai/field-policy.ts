import { ApiError } from "../../../shared/errors/api-error.ts";

/**
 * What becomes of a member of a request body. `honoured`: read by the engine. `ignored`: known and without influence
 * on the answer. A function: the member would change the answer and is refused, except for values that change nothing.
 * Members not in the table are ignored too; null always counts as absent.
 */
export type FieldRule = "honoured" | "ignored" | ((value: unknown) => boolean);
export type FieldTable = Readonly<Record<string, FieldRule>>;

/** The members that had no effect. Throws `unsupported_field`, or `unused_fields_refused` under X-Steerage-Strict. */
export function applyFieldPolicy(
  body: Readonly<Record<string, unknown>>,
  table: FieldTable,
  strict: boolean,
): readonly string[] {
  const ignored: string[] = [];
  for (const [name, value] of Object.entries(body)) {
    if (value === null || value === undefined) continue;
    const rule = Object.hasOwn(table, name) ? table[name] : "ignored";
    if (rule === "honoured") continue;
    if (rule === "ignored" || rule === undefined) ignored.push(name);
    else if (!rule(value)) {
      throw new ApiError("unsupported_field", {
        message: `'${shown(name)}' would change the answer and is not supported here; it is refused rather than ignored.`,
        param: shown(name),
      });
    }
  }
  if (strict && ignored.length > 0) {
    throw new ApiError("unused_fields_refused", {
      message: `These fields would be ignored, and X-Steerage-Strict is set: ${ignored.map(shown).join(", ")}.`,
      param: shown(ignored[0] ?? ""),
    });
  }
  return ignored;
}

const MAX_HEADER_LENGTH = 1_024;

/** Value of X-Steerage-Ignored-Fields: names, cut at 1,024 characters with the number of those left out. */
export function ignoredFieldsHeader(ignored: readonly string[]): string {
  let text = "";
  for (const [place, name] of ignored.entries()) {
    const next = text === "" ? shown(name) : `${text}, ${shown(name)}`;
    if (next.length > MAX_HEADER_LENGTH) return `${text} +${ignored.length - place} more`.trimStart();
    text = next;
  }
  return text;
}

/** Member names are the caller's own text: a header may hold only printable ASCII without separators. */
function shown(name: string): string {
  return name.replace(/[^\w.-]/g, "?").slice(0, 64);
}
