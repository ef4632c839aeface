/** OpenAI's error types; clients branch on them. */
export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  | "rate_limit_error"
  | "server_error";

export interface ErrorDefinition {
  readonly status: number;
  readonly type: ErrorType;
  /** Whether the same request may succeed later unchanged; such an answer always carries Retry-After. */
  readonly retryable: boolean;
  /** Sent when the thrower gives no message of its own. */
  readonly message: string;
  /** What it means and what to do, for the generated table. */
  readonly documentation: string;
}

/** The same request may succeed later, unchanged. */
const passing = (status: number, type: ErrorType, message: string, documentation: string): ErrorDefinition => ({
  status,
  type,
  retryable: true,
  message,
  documentation,
});
/** Asking again changes nothing. */
const final = (status: number, type: ErrorType, message: string, documentation: string): ErrorDefinition => ({
  status,
  type,
  retryable: false,
  message,
  documentation,
});

/** Every error that leaves a Steerage program, by its stable code. */
export const ERRORS = {
  invalid_json: final(
    400,
    "invalid_request_error",
    "The body is not valid JSON.",
    "Send one JSON object, encoded as UTF-8.",
  ),
  invalid_body: final(
    400,
    "invalid_request_error",
    "The body must be a JSON object.",
    "Arrays, strings, numbers and null are not requests.",
  ),
  invalid_value: final(
    400,
    "invalid_request_error",
    "A field has a value that is not allowed.",
    "`param` names the field; the message says what is allowed.",
  ),
  missing_field: final(400, "invalid_request_error", "A required field is missing.", "`param` names the field."),
  unsupported_field: final(
    400,
    "invalid_request_error",
    "A field would change the answer and is not supported here.",
    "Remove the field named by `param`; it is refused rather than dropped.",
  ),
  unused_fields_refused: final(
    400,
    "invalid_request_error",
    "The request has fields that would be ignored, and X-Steerage-Strict is set.",
    "Remove the named fields or the header.",
  ),
  context_length_exceeded: final(
    400,
    "invalid_request_error",
    "The prompt does not fit the context window.",
    "The message gives both numbers. Shorten the prompt.",
  ),
  invalid_messages: final(
    400,
    "invalid_request_error",
    "The model's chat template refused the messages.",
    "The message is the template's own.",
  ),
  invalid_response_format: final(
    400,
    "invalid_request_error",
    "The response format cannot be turned into a grammar.",
    "Simplify the schema; the message says where.",
  ),
  invalid_steering: final(
    400,
    "invalid_request_error",
    "The steering of this request is not valid.",
    "`param` names the member.",
  ),
  invalid_feature_index: final(
    400,
    "invalid_request_error",
    "A feature index is out of range for the SAE.",
    "Indices run from 0 to the SAE's feature count less one.",
  ),
  sae_not_available: final(
    400,
    "invalid_request_error",
    "No replica of this model holds that SAE.",
    "The message names the SAEs that are available.",
  ),
  sae_activations_refused: final(
    400,
    "invalid_request_error",
    "Activations cannot be returned for this request.",
    "The message says which member stands against it.",
  ),
  idempotency_key_reused: final(
    422,
    "invalid_request_error",
    "This Idempotency-Key was used with another request.",
    "A key is remembered for `router.idempotency.keep`, per project. Use a new one for every request that is not a repetition.",
  ),
  idempotent_answer_not_kept: final(
    409,
    "invalid_request_error",
    "The first answer to this Idempotency-Key was too large to be given again.",
    "It was given once and billed once. Bounds: `router.idempotency.max_answer` and `max_project_bytes`; use a new key to ask anew.",
  ),
  idempotency_keys_exhausted: passing(
    429,
    "rate_limit_error",
    "This project has used as many Idempotency-Keys as are remembered.",
    "`router.idempotency.max_keys_per_project`; keys are forgotten after `keep`. Requests without a key go on.",
  ),
  idempotency_unavailable: passing(
    503,
    "server_error",
    "Whether this request was answered before cannot be told at the moment.",
    "The database is away. Send it without an Idempotency-Key, or wait for Retry-After seconds.",
  ),
  length_required: final(
    411,
    "invalid_request_error",
    "The body could not be read to its end.",
    "Send the whole body.",
  ),
  body_too_large: final(
    413,
    "invalid_request_error",
    "The body is larger than this server accepts.",
    "The limit is `router.max_body_bytes`.",
  ),
  unsupported_media_type: final(
    415,
    "invalid_request_error",
    "The body must be sent as application/json.",
    "Set Content-Type to application/json.",
  ),
  missing_api_key: final(
    401,
    "authentication_error",
    "No API key was given. Send it as 'Authorization: Bearer <key>'.",
    "Keys are made with `steerage keys create`.",
  ),
  invalid_api_key: final(
    401,
    "authentication_error",
    "The API key is not valid.",
    "Unknown, malformed and revoked keys get the same answer.",
  ),
  host_unauthorized: final(
    401,
    "authentication_error",
    "This request was not signed by an edge that this host knows.",
    "Between edge and host only: check enrolment and clocks.",
  ),
  permission_denied: final(403, "permission_error", "This key may not do that.", "Ask the operator."),
  sae_not_found: final(
    404,
    "not_found_error",
    "The SAE does not exist or is not served here.",
    "`GET /v1/saes` lists what there is.",
  ),
  watch_list_not_found: final(
    404,
    "not_found_error",
    "There is no watch list of this name.",
    "For operators: `GET /host/v1/models/{model}/watch-lists` lists them.",
  ),
  model_not_found: final(
    404,
    "not_found_error",
    "The model does not exist or is not served here.",
    "GET /v1/models lists what is served.",
  ),
  route_not_found: final(404, "not_found_error", "There is nothing at this path.", "The base URL ends with /v1."),
  request_not_found: final(
    404,
    "not_found_error",
    "There is no such request, or none any more.",
    "Ids stand in the header X-Request-Id; an edge remembers the latest requests of the key's own project only.",
  ),
  method_not_allowed: final(
    405,
    "invalid_request_error",
    "This path does not accept that method.",
    "The Allow header lists the methods.",
  ),
  rate_limit_exceeded: passing(
    429,
    "rate_limit_error",
    "A rate limit of this key was reached.",
    "The message names the limit; wait for Retry-After seconds.",
  ),
  insufficient_quota: final(
    429,
    "rate_limit_error",
    "A budget of this key is used up.",
    "The message names the budget; `Retry-After` says when one of a day or a month begins anew. Ask the operator to raise it.",
  ),
  queue_full: passing(
    429,
    "rate_limit_error",
    "Too many requests are waiting for this model.",
    "Wait for Retry-After seconds.",
  ),
  queue_timeout: passing(
    429,
    "rate_limit_error",
    "The request waited too long for a free slot.",
    "Wait for Retry-After seconds.",
  ),
  no_replica_available: passing(
    503,
    "server_error",
    "No machine that serves this model is reachable now.",
    "Wait for Retry-After seconds; the operator sees why on the hosts' pages.",
  ),
  authentication_unavailable: passing(
    503,
    "server_error",
    "Keys cannot be checked at the moment.",
    "The key store is away; keys seen lately go on working.",
  ),
  limits_unavailable: passing(
    503,
    "server_error",
    "What is left of a limit cannot be told at the moment.",
    "Edges share budgets through their database, and it is away or another edge has not answered yet.",
  ),
  usage_journal_full: passing(
    503,
    "server_error",
    "Usage cannot be recorded at the moment.",
    "The journal is full: the operator must free disk space or repair the database.",
  ),
  draining: passing(
    503,
    "server_error",
    "This server is shutting down.",
    "Ask again; another one or the restarted one will answer.",
  ),
  engine_busy: passing(
    503,
    "server_error",
    "Every slot of this machine is taken.",
    "Between edge and host: the edge picks another replica.",
  ),
  upstream_unreachable: passing(
    502,
    "server_error",
    "The machine that should answer could not be reached.",
    "Nothing was computed. Ask again.",
  ),
  upstream_error: passing(
    502,
    "server_error",
    "The machine that should answer failed.",
    "Ask again; if it repeats, tell the operator the request id.",
  ),
  upstream_truncated: passing(
    502,
    "server_error",
    "The answer broke off before it was complete.",
    "Inside a stream it is the last event; there is no [DONE].",
  ),
  engine_crashed: passing(
    502,
    "server_error",
    "The engine process ended while it worked on this request.",
    "It is restarted; ask again.",
  ),
  engine_failed: final(
    500,
    "server_error",
    "The engine could not compute this request.",
    "Other requests are not affected. Tell the operator the request id.",
  ),
  dial_timeout: passing(
    504,
    "server_error",
    "The machine that should answer did not accept a connection in time.",
    "`router.timeouts.dial`",
  ),
  response_header_timeout: passing(
    504,
    "server_error",
    "The machine that should answer sent no response headers in time.",
    "`router.timeouts.response_header`",
  ),
  first_token_timeout: passing(504, "server_error", "No token came in time.", "`router.timeouts.first_token`"),
  idle_timeout: passing(504, "server_error", "The stream stood still for too long.", "`router.timeouts.idle`"),
  generation_timeout: passing(
    504,
    "server_error",
    "The answer took too long.",
    "`router.timeouts.generation`; stream long answers.",
  ),
  total_timeout: passing(
    504,
    "server_error",
    "The request took longer than any request may.",
    "`router.timeouts.total`",
  ),
  loop_detected: final(
    508,
    "server_error",
    "The request came back to a server that it had passed.",
    "An endpoint's `url` leads back to this edge; the operator must mend `endpoints`.",
  ),
  client_closed_request: final(
    499,
    "invalid_request_error",
    "The client went away.",
    "Never seen by the client; for logs and the ledger.",
  ),
  internal_error: final(
    500,
    "server_error",
    "Something went wrong on our side.",
    "Tell the operator the request id; details are in the log.",
  ),
} as const satisfies Record<string, ErrorDefinition>;

export type ErrorCode = keyof typeof ERRORS;
