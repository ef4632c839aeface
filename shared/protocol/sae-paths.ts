/** Where callers find what is known of SAEs; the same at the edge, on hosts and in engines. */
export const SAES_PATH = "/v1/saes";

/** `/v1/saes/{id}`, `…/features`, `…/features/{index}`, `…/features/rank`; an id may hold slashes, encoded or not. */
const PLACE = /^\/v1\/saes\/(?<id>.+?)(?<features>\/features(?:\/(?<rank>rank)|\/(?<index>\d{1,9}))?)?$/;

export type SaePlace =
  | { readonly kind: "list" }
  | { readonly kind: "sae" | "features" | "rank"; readonly id: string }
  | { readonly kind: "feature"; readonly id: string; readonly index: number };

/** What a path without its query asks for; null when it is none of these. */
export function readSaePath(path: string): SaePlace | null {
  if (path === SAES_PATH) return { kind: "list" };
  const { id, features, rank, index } = PLACE.exec(path)?.groups ?? {};
  if (id === undefined) return null;
  const decodedId = decoded(id);
  if (features === undefined) return { kind: "sae", id: decodedId };
  if (rank !== undefined) return { kind: "rank", id: decodedId };
  if (index !== undefined) return { kind: "feature", id: decodedId, index: Number(index) };
  return { kind: "features", id: decodedId };
}

/** Only a ranking sends a body. */
export function methodOfSaePlace(place: SaePlace): "GET" | "POST" {
  return place.kind === "rank" ? "POST" : "GET";
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
