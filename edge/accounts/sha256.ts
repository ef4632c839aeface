/** SHA-256 of the UTF-8 bytes of a text, lower-case hex. */
export type Sha256 = (text: string) => Promise<string>;

/** By Web Crypto, which every runtime has. */
export const sha256: Sha256 = async (text) => {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  let hex = "";
  for (const byte of digest) hex += byte.toString(16).padStart(2, "0");
  return hex;
};
