/** Valid for one connection only (RFC 9110, 7.6.1), and those that describe a body the next hop frames anew. */
const HOP_BY_HOP = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Response headers of an engine or host that a proxy may pass on; an allow list, so nothing internal leaks. */
const PASSED_DOWN = new Set(["content-type", "cache-control", "retry-after"]);

export function isHopByHop(name: string): boolean {
  return HOP_BY_HOP.has(name.toLowerCase());
}

export function isPassedDown(name: string): boolean {
  const lower = name.toLowerCase();
  return PASSED_DOWN.has(lower) || (lower.startsWith("x-steerage-") && !isHopByHop(lower));
}
