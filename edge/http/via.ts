import { ApiError } from "../../shared/errors/api-error.ts";

/** More edges than this in a row are no route that anybody meant. */
const MAX_EDGES = 8;
/** An id that is longer is not one of ours; it is cut, so that the header cannot grow. */
const MAX_ID_LENGTH = 64;

/**
 * The edges that a request came through, with this one at the end, for the next of them. Throws loop_detected when it
 * was here before: an endpoint's address leads back to this edge (case C119).
 */
export function viaWith(own: string, header: string | undefined): string {
  const before = (header ?? "")
    .split(",")
    .map((id) => id.trim().slice(0, MAX_ID_LENGTH))
    .filter((id) => /^[\w.~-]+$/.test(id));
  if (before.includes(own) || before.length >= MAX_EDGES) throw new ApiError("loop_detected");
  return [...before, own].join(", ");
}
