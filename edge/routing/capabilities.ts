import type { InferenceRoute } from "../../shared/openai/request-envelope.ts";

/** The word with which replicas report that they answer a route. */
export const CAPABILITY_OF_ROUTE: Readonly<Record<InferenceRoute, string>> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "completions",
  "/v1/embeddings": "embeddings",
};
