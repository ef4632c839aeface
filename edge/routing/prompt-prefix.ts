import type { PromptPrefix } from "../ports/coordinator.ts";
import { TextHash } from "./hash.ts";

const BLOCK_CHARACTERS = 256;
/** Further text is not looked at: beyond it, machines that match so far are as good as each other. */
const MAX_CHARACTERS = 64 * 1_024;

/**
 * A prompt's text as chained block hashes. `scope` is all that must be the same before any cache can be shared, such
 * as the project and what steers.
 */
export function promptPrefix(text: string, from: number, scope: string): PromptPrefix {
  const hash = new TextHash().update(scope);
  const end = Math.min(text.length, from + MAX_CHARACTERS);
  const hashes: number[] = [];
  for (let start = from; start + BLOCK_CHARACTERS <= end; start += BLOCK_CHARACTERS)
    hashes.push(hash.update(text, start, start + BLOCK_CHARACTERS).value());
  return { hashes, blockBytes: BLOCK_CHARACTERS, bytes: end - from };
}
