/**
 * Names and values in turn, as Node and undici take them, with `value` as the one header `name`. A copy of the object by
 * spreading, with one property more, is made the slow way each time.
 */
export function flatHeaders(headers: Readonly<Record<string, string>>, name: string, value: string): string[] {
  const flat: string[] = [];
  for (const other of Object.keys(headers)) if (other !== name) flat.push(other, headers[other] ?? "");
  flat.push(name, value);
  return flat;
}
