import type { InferenceRoute, RequestEnvelope } from "../../shared/openai/request-envelope.ts";

/** The word with which replicas report that they answer a route. */
export const CAPABILITY_OF_ROUTE: Readonly<Record<InferenceRoute, string>> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "completions",
  "/v1/embeddings": "embeddings",
};

/** What a request may need beyond its route. */
export const FEATURES = ["tools", "vision"] as const;

/** What one replica does, by its own word and the operator's. */
export interface Abilities {
  readonly kind: "host" | "endpoint";
  /** Empty means that it takes every kind of request. */
  readonly capabilities: readonly string[];
  readonly lacks: readonly string[];
}

export function canDo({ capabilities, lacks }: Abilities, capability: string): boolean {
  return !lacks.includes(capability) && (capabilities.length === 0 || capabilities.includes(capability));
}

/** Of a static endpoint only the operator can say that it does not have one. */
export function hasFeature(abilities: Abilities, feature: string): boolean {
  return abilities.kind === "endpoint" ? !abilities.lacks.includes(feature) : canDo(abilities, feature);
}

/** The features that this request needs. */
export function featuresOf(envelope: RequestEnvelope): readonly string[] {
  const { tools, messages } = envelope;
  return [
    ...(Array.isArray(tools) && tools.length > 0 ? ["tools"] : []),
    ...(Array.isArray(messages) && messages.some(showsImage) ? ["vision"] : []),
  ];
}

function showsImage(message: unknown): boolean {
  if (typeof message !== "object" || message === null || !("content" in message)) return false;
  const { content } = message;
  return Array.isArray(content) && content.some((part: unknown) => isImage(part));
}

function isImage(part: unknown): boolean {
  return typeof part === "object" && part !== null && "type" in part && part.type === "image_url";
}
