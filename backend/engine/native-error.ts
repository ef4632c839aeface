import { NATIVE_ERROR_CODES, type NativeErrorCode } from "../native/binding.ts";

/** The stable code of something the native core threw, or null for anything else. */
export function nativeErrorCode(thrown: unknown): NativeErrorCode | null {
  if (!(thrown instanceof Error) || !("code" in thrown)) return null;
  return NATIVE_ERROR_CODES.find((code) => code === thrown.code) ?? null;
}
