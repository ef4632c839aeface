/**
 * Whether two texts are equal, in a time that depends on the length of the first one only. Never throws, whatever the
 * lengths are.
 */
export function equalInConstantTime(given: string, stored: string): boolean {
  let difference = given.length ^ stored.length;
  for (let at = 0; at < given.length; at += 1) {
    // Past its end charCodeAt gives NaN, which counts as 0 here; the lengths have told the difference already.
    difference |= given.charCodeAt(at) ^ stored.charCodeAt(at);
  }
  return difference === 0;
}
