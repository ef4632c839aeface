import { randomBase62, type RandomBytes } from "../../shared/ids.ts";

const PUBLIC_ID_LENGTH = 12;
const SECRET_LENGTH = 43;
const KEY_PREFIX = "sk-st-";
const KEY_LENGTH = KEY_PREFIX.length + PUBLIC_ID_LENGTH + 1 + SECRET_LENGTH;
const KEY = /^sk-st-([0-9A-Za-z]{12})-([0-9A-Za-z]{43})$/;

const HOST_TOKEN_PREFIX = "sk-host-";
const HOST_TOKEN_LENGTH = HOST_TOKEN_PREFIX.length + SECRET_LENGTH;
const HOST_TOKEN = /^sk-host-[0-9A-Za-z]{43}$/;

export interface ApiKeyParts {
  readonly publicId: string;
  readonly secret: string;
}

/** Takes `sk-st-<12 base62>-<43 base62>` apart; null for anything else, without looking at more than its length first. */
export function parseApiKey(credential: string): ApiKeyParts | null {
  if (credential.length !== KEY_LENGTH) return null;
  const match = KEY.exec(credential);
  const publicId = match?.[1];
  const secret = match?.[2];
  return publicId === undefined || secret === undefined ? null : { publicId, secret };
}

/** A new key; `text` is the whole credential, to be shown once and kept nowhere. */
export function newApiKey(randomBytes: RandomBytes): ApiKeyParts & { readonly text: string } {
  const publicId = randomBase62(PUBLIC_ID_LENGTH, randomBytes);
  const secret = randomBase62(SECRET_LENGTH, randomBytes);
  return { publicId, secret, text: `${KEY_PREFIX}${publicId}-${secret}` };
}

export function isHostToken(credential: string): boolean {
  return credential.length === HOST_TOKEN_LENGTH && HOST_TOKEN.test(credential);
}

/** A new enrolment token of a host. */
export function newHostToken(randomBytes: RandomBytes): string {
  return `${HOST_TOKEN_PREFIX}${randomBase62(SECRET_LENGTH, randomBytes)}`;
}
