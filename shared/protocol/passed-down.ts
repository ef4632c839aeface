/** Response headers of an engine or host that a proxy may pass on; an allow list, so nothing internal leaks. */
const PASSED_DOWN = new Set(["content-type", "cache-control", "retry-after"]);

export function isPassedDown(name: string): boolean {
  const lower = name.toLowerCase();
  return PASSED_DOWN.has(lower) || lower.startsWith("x-steerage-");
}
