/** From the most telling word of a reason to what callers may hear: reasons name files and are for operators. */
const CLASSES: readonly (readonly [RegExp, string])[] = [
  [/memory/iu, "there is not enough memory for it"],
  [/\bSAEs?\b/u, "an SAE of it cannot be used"],
  [/in time|answering/iu, "its engine does not answer"],
  [/file|gguf|load|ENOENT/iu, "its file cannot be loaded"],
];

/** Why a replica failed, as a class without names of files. */
export function failureClass(reason: string): string {
  return CLASSES.find(([pattern]) => pattern.test(reason))?.[1] ?? "its engine ends again and again";
}
