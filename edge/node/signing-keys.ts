import { chmod, mkdir, open, readFile, rename } from "node:fs/promises";
import path from "node:path";
import { newSigningKey, signingKeySetSchema, type SigningKeySet } from "../web/signer.jose.ts";
import { OperatorError } from "./operator-error.ts";

/** The edge's private keys, readable by its user only: `DATA/keys/edge-signing.json`, a set of one or two JWKs. */
export async function signingKeysOf(dataDirectory: string): Promise<SigningKeySet> {
  return (await existingSigningKeysOf(dataDirectory)) ?? create(fileOf(dataDirectory));
}

/** Null where no edge has run with this data directory yet. */
export async function existingSigningKeysOf(dataDirectory: string): Promise<SigningKeySet | null> {
  const file = fileOf(dataDirectory);
  const text = await readFile(file, "utf8").catch((thrown: unknown) => {
    if (thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT") return null;
    throw new OperatorError(`The signing key ${file} cannot be read.`);
  });
  if (text === null) return null;
  const result = signingKeySetSchema.safeParse(parsedJson(text));
  if (!result.success) throw new OperatorError(`The signing key ${file} is damaged; hosts must be told a new one.`);
  await chmod(file, 0o600);
  return result.data;
}

const fileOf = (dataDirectory: string): string => path.join(dataDirectory, "keys", "edge-signing.json");

async function create(file: string): Promise<SigningKeySet> {
  const keys: SigningKeySet = { keys: [await newSigningKey()] };
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const fresh = `${file}.${process.pid}.new`;
  const handle = await open(fresh, "w", 0o600);
  try {
    await handle.writeFile(`${JSON.stringify(keys)}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(fresh, file);
  return keys;
}

function parsedJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value;
  } catch {
    return null;
  }
}
