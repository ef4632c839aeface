/** An SAE that cannot be used. The message names the file and what was found in it, and is meant for the operator. */
export class SaeFileError extends Error {
  constructor(file: string, found: string, cause?: unknown) {
    super(`${file}: ${found}`, { cause });
    this.name = "SaeFileError";
  }
}
