import { ApiError } from "../../shared/errors/api-error.ts";
import { joinBytes } from "../../shared/join-bytes.ts";

/** A JSON object as the caller sent it, and as text for those who forward it unchanged. */
export interface JsonObjectBody {
  readonly text: string;
  readonly object: Readonly<Record<string, unknown>>;
}

/**
 * Reads a body that must be one JSON object. In this order: media type (415), size (413), UTF-8 (400), JSON (400),
 * object (400). Never holds more than the limit, whether the length is announced or not.
 */
export async function readJsonObject(request: Request, maxBytes: number): Promise<JsonObjectBody> {
  checkMediaType(request.headers.get("content-type"));
  return jsonObjectOf(await readBytes(request, maxBytes));
}

/** Refuses with 415 what is not announced as JSON. */
export function checkMediaType(header: string | null): void {
  if (!isJsonMediaType(header)) throw new ApiError("unsupported_media_type");
}

/** The last three of the steps above. */
export function jsonObjectOf(bytes: Uint8Array): JsonObjectBody {
  const text = decoded(bytes);
  const value = parsed(text);
  if (!isObject(value)) throw new ApiError("invalid_body");
  return { text, object: value };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * `application/json` and `application/*+json` with any parameters. A body without a type is refused too: pages could
 * send one across origins without a preflight (case C055).
 */
export function isJsonMediaType(header: string | null): boolean {
  if (header === "application/json") return true;
  const type = (header ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  return type === "application/json" || /^application\/[a-z0-9!#$&^_.+-]+\+json$/.test(type);
}

async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const announced = request.headers.get("content-length");
  if (announced !== null && Number(announced) > maxBytes) throw tooLarge(maxBytes);
  try {
    if (announced !== null && !request.headers.has("transfer-encoding")) {
      const bytes = new Uint8Array(await request.arrayBuffer());
      if (bytes.byteLength > maxBytes) throw tooLarge(maxBytes);
      return bytes;
    }
    return await readBounded(request.body, maxBytes);
  } catch (thrown) {
    if (thrown instanceof ApiError) throw thrown;
    throw new ApiError("length_required", { cause: thrown });
  }
}

async function readBounded(body: ReadableStream<Uint8Array> | null, maxBytes: number): Promise<Uint8Array> {
  if (body === null) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let total = 0;
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    total += value.byteLength;
    if (total > maxBytes) {
      // Not awaited: the sender may take its time to stop, and its answer is known.
      reader.cancel().catch(() => undefined);
      throw tooLarge(maxBytes);
    }
    chunks.push(value);
  }
  return joinBytes(chunks);
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError("body_too_large", { message: `The body is larger than ${maxBytes} bytes.` });
}

const UTF8 = new TextDecoder("utf-8", { fatal: true });

function decoded(bytes: Uint8Array): string {
  try {
    return UTF8.decode(bytes);
  } catch (thrown) {
    throw new ApiError("invalid_json", { message: "The body is not valid UTF-8.", cause: thrown });
  }
}

function parsed(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value;
  } catch (thrown) {
    throw new ApiError("invalid_json", { cause: thrown });
  }
}
