import type { IncomingMessage } from "node:http";
import { ApiError } from "../../../shared/errors/api-error.ts";

/** The bytes of a body up to a limit. Throws `body_too_large`, or `length_required` when the sender broke off. */
export async function readBody(request: IncomingMessage, limitBytes: number): Promise<Uint8Array> {
  const stated = Number(request.headers["content-length"] ?? 0);
  if (stated > limitBytes) throw new ApiError("body_too_large");
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      if (!(chunk instanceof Uint8Array)) continue;
      length += chunk.byteLength;
      if (length > limitBytes) throw new ApiError("body_too_large");
      chunks.push(chunk);
    }
  } catch (thrown) {
    if (thrown instanceof ApiError) throw thrown;
    throw new ApiError("length_required", { cause: thrown });
  }
  return Buffer.concat(chunks);
}
