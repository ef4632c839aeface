/**
 * Text for a header's value, which may hold visible ASCII only: everything else is percent-encoded, as models may be
 * named in any script.
 */
export function headerText(text: string): string {
  if (/^[\x21-\x7e]*$/.test(text)) return text;
  return text.replace(/[^\x21-\x7e]/gu, (character) => {
    // Half of a pair stands for nothing and has no encoding.
    return /\p{Surrogate}/u.test(character) ? "%EF%BF%BD" : encodeURIComponent(character);
  });
}
