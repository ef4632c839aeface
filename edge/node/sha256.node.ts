import { hash } from "node:crypto";
import type { Sha256 } from "../accounts/sha256.ts";

/** On this thread at once: for a credential that is far cheaper than Web Crypto's way through the thread pool. */
export const sha256OnNode: Sha256 = (text) => Promise.resolve(hash("sha256", text, "hex"));
