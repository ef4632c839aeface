/** Raised when a message changes meaning. New members need no new number: unknown ones are ignored. */
export const PROTOCOL_VERSION = 1;

/** A host may be one behind the edge, so that edges can be updated first; never ahead. */
export function isProtocolAccepted(hostVersion: number): boolean {
  return hostVersion === PROTOCOL_VERSION || hostVersion === PROTOCOL_VERSION - 1;
}
