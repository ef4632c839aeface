/** Headers of our own, lower case. From the caller, but for those whose names are settings. */
export const STRICT_HEADER = "x-steerage-strict";
/** `comments`: a stream that waits is told its place in the queue. */
export const PROGRESS_HEADER = "x-steerage-progress";

/** A repetition with the same one gets the first answer. */
export const IDEMPOTENCY_KEY_HEADER = "idempotency-key";

/** The edges that a request came through, on its way to an endpoint that may be an edge too. */
export const VIA_HEADER = "x-steerage-via";

/** To the caller. */
export const REQUEST_ID_HEADER = "x-request-id";
export const STEERING_HEADER = "x-steerage-steering";
export const ROUTE_HEADER = "x-steerage-route";
export const IGNORED_FIELDS_HEADER = "x-steerage-ignored-fields";
/** `true`: the answer was given before, to the same Idempotency-Key. */
export const REPLAYED_HEADER = "idempotent-replayed";
/** `edge` or `backend`: which of the two refused or failed. */
export const ERROR_SOURCE_HEADER = "x-steerage-error-source";

/** Inside a host, from the agent to its engine process, on a socket no one else reaches. */
export const ENGINE_REQUEST_ID_HEADER = "x-steerage-request-id";
export const ENGINE_ATTEMPT_HEADER = "x-steerage-attempt";
export const ENGINE_CACHE_SALT_HEADER = "x-steerage-cache-salt";
