/** Bounds that must not pass each other: the least and the most of one thing. */
const PAIRS = [
  ["minLength", "maxLength"],
  ["minItems", "maxItems"],
] as const;

/**
 * What one level of a schema says that no answer could satisfy, or that the library would take for something else; null
 * when it makes sense.
 */
export function senselessLevel(schema: object): string | null {
  const member = (name: string): unknown => Reflect.get(schema, name);
  for (const names of PAIRS) {
    for (const name of names) {
      const value = member(name);
      if (value !== undefined && !(Number.isInteger(value) && Number(value) >= 0)) {
        return `'${name}' must be a whole number from 0`;
      }
    }
    const [least, most] = names;
    if (Number(member(least) ?? 0) > Number(member(most) ?? Infinity)) return `'${least}' is above '${most}'`;
  }
  return noInteger(member) ?? objectFault(member("properties"), member("required"));
}

function noInteger(member: (name: string) => unknown): string | null {
  if (member("type") !== "integer") return null;
  const bound = (name: string, none: number): number => {
    const value = member(name);
    return typeof value === "number" ? value : none;
  };
  const least = Math.max(Math.ceil(bound("minimum", -Infinity)), Math.floor(bound("exclusiveMinimum", -Infinity)) + 1);
  const most = Math.min(Math.floor(bound("maximum", Infinity)), Math.ceil(bound("exclusiveMaximum", Infinity)) - 1);
  return least > most ? "no integer is within its bounds" : null;
}

function objectFault(properties: unknown, required: unknown): string | null {
  if (properties !== undefined && !isRecord(properties)) return "'properties' must be an object";
  if (required === undefined) return null;
  if (!Array.isArray(required)) return "'required' must be a list of names";
  const stranger: unknown = required.find((name) => typeof name !== "string" || !isNamed(name, properties));
  return stranger === undefined
    ? null
    : `'required' names ${JSON.stringify(stranger)}, which 'properties' does not have`;
}

const isRecord = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);
const isNamed = (name: string, properties: unknown): boolean =>
  typeof properties === "object" && properties !== null && Object.hasOwn(properties, name);
