/** SAEs are configured for a model on which they cannot be proven to work. */
export class HooksRefused extends Error {
  readonly code = "hook_point_unsupported";

  constructor(reason: string) {
    super(`SAEs cannot be used with this model: ${reason}`);
    this.name = "HooksRefused";
  }
}
