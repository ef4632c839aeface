import { ApiError } from "../../shared/errors/api-error.ts";

/** Anything else, a path or `file:` above all, would be opened on the machine that answers. */
const ALLOWED = /^(?:data|https?):/i;

/**
 * Images, sound and video of a chat that name something else than an address on the network or the data itself are
 * refused before any machine hears of them. Throws a 400 that names the part.
 */
export function checkMediaAddresses(messages: unknown): void {
  if (!Array.isArray(messages)) return;
  messages.forEach((message: unknown, place) => {
    const content = memberOf(message, "content");
    if (!Array.isArray(content)) return;
    content.forEach((part: unknown, at) => {
      const type = memberOf(part, "type");
      if (typeof type !== "string" || !type.endsWith("_url")) return;
      const given = memberOf(part, type);
      const address = typeof given === "string" ? given : memberOf(given, "url");
      if (typeof address !== "string" || ALLOWED.test(address)) return;
      throw new ApiError("invalid_value", {
        message: `A '${type}' must be an http, https or data address.`,
        param: `messages[${place}].content[${at}].${type}`,
      });
    });
  });
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}
