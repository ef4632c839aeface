/** Bounds of the public wire format, in one place for schemas, refusals and documentation. */
export const MAX_STOP_STRINGS = 4;
export const MAX_STOP_STRING_LENGTH = 1_024;
export const MAX_EMBEDDING_INPUTS = 2_048;
export const MAX_TOP_LOGPROBS = 20;
/** Of the sampler; other seeds of a request are taken modulo 2^32. */
export const MAX_SEED = 4_294_967_295;
