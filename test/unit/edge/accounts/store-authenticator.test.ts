import { NO_SCOPE_LIMITS } from "../../../../edge/ports/limits.ts";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { newApiKey, newHostToken } from "../../../../edge/accounts/api-key.ts";
import { sha256 } from "../../../../edge/accounts/sha256.ts";
import { StoreAuthenticator } from "../../../../edge/accounts/store-authenticator.ts";
import { newVerdictMemory, type VerdictMemory } from "../../../../edge/accounts/verdict-memory.ts";
import type { HostRecord, KeyRecord, KeyStore } from "../../../../edge/ports/key-store.ts";
import { createLogger } from "../../../../shared/logging/logger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const NO_LIMITS = NO_SCOPE_LIMITS;

class ScriptedKeyStore implements KeyStore {
  readonly keys = new Map<string, KeyRecord>();
  readonly hosts = new Map<string, HostRecord>();
  revision = 1;
  away = false;
  lookUps = 0;
  polls = 0;
  /** Look-ups wait for it. */
  gate: Promise<void> = Promise.resolve();

  async findKey(keyId: string): Promise<KeyRecord | null> {
    this.lookUps += 1;
    const found = this.keys.get(keyId) ?? null;
    await this.gate;
    if (this.away) throw new Error("away");
    return found;
  }

  async findHostByToken(tokenSha256: string): Promise<HostRecord | null> {
    this.lookUps += 1;
    if (this.away) throw new Error("away");
    return this.hosts.get(tokenSha256) ?? null;
  }

  async keyRevision(): Promise<number> {
    this.polls += 1;
    await this.gate;
    if (this.away) throw new Error("away");
    return this.revision;
  }
}

let seed = 0;
const bytes = (length: number): Uint8Array => Uint8Array.from({ length }, (_, at) => (at * 37 + ++seed * 11) % 248);

let clock: ManualClock;
let store: ScriptedKeyStore;
let memory: VerdictMemory;
let authenticator: StoreAuthenticator;
const lines: string[] = [];

beforeEach(() => {
  clock = new ManualClock();
  store = new ScriptedKeyStore();
  lines.length = 0;
  memory = newVerdictMemory({ cacheTtlMs: 10_000, negativeTtlMs: 30_000, staleIfErrorMs: 60_000, maxEntries: 2 });
  authenticator = another();
});

/** One that remembers what the others know. */
function another(): StoreAuthenticator {
  const logger = createLogger({ level: "debug", format: "json", clock, write: (line) => lines.push(line) });
  return new StoreAuthenticator({ clock, sha256, store, logger, memory });
}

async function addKey(): Promise<{ text: string; keyId: string }> {
  const { text, publicId, secret } = newApiKey(bytes);
  store.keys.set(publicId, {
    keyId: publicId,
    secretSha256: await sha256(secret),
    account: "acme",
    project: "p1",
    highestBand: "default",
    keyLimits: NO_LIMITS,
    projectLimits: NO_LIMITS,
    accountLimits: NO_LIMITS,
    createdAtMs: 0,
    revokedAtMs: null,
  });
  return { text, keyId: publicId };
}

function revoke(keyId: string): void {
  const record = store.keys.get(keyId);
  if (record !== undefined) store.keys.set(keyId, { ...record, revokedAtMs: 1 });
  store.revision += 1;
}

interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

function gateOf(): Gate {
  const gate: { opened: Promise<void>; open: () => void } = { opened: Promise.resolve(), open: () => undefined };
  gate.opened = new Promise((resolve) => {
    gate.open = resolve;
  });
  return gate;
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

describe("a key", () => {
  it("names its caller, and is asked for once while its verdict is fresh", async () => {
    const { text, keyId } = await addKey();
    expect(await authenticator.authenticate(text)).toEqual({
      account: "acme",
      project: "p1",
      keyId,
      highestBand: "default",
      keyLimits: NO_LIMITS,
      projectLimits: NO_LIMITS,
      accountLimits: NO_LIMITS,
    });
    await authenticator.authenticate(text);
    expect(store.lookUps).toBe(1);
    clock.advance(10_000);
    await authenticator.authenticate(text);
    expect(store.lookUps).toBe(2);
  });

  it("is asked for once by callers who come together", async () => {
    const { text } = await addKey();
    await Promise.all(Array.from({ length: 20 }, () => authenticator.authenticate(text)));
    expect(store.lookUps).toBe(1);
  });

  it("is refused when its secret is another, and the verdict is kept for that credential alone", async () => {
    const { text } = await addKey();
    const last = text.endsWith("A") ? "B" : "A";
    const wrong = text.slice(0, -1) + last;
    for (let time = 0; time < 3; time += 1) {
      await expect(authenticator.authenticate(wrong)).rejects.toMatchObject({ code: "invalid_api_key", status: 401 });
    }
    expect(store.lookUps).toBe(1);
    await expect(authenticator.authenticate(text)).resolves.toMatchObject({ project: "p1" });
  });

  it("of the wrong form never reaches the store", async () => {
    for (const text of ["", "sk-st-", "x".repeat(10_240), "sk-st-aaaaaaaaaaaa-" + "ü".repeat(43)]) {
      await expect(authenticator.authenticate(text)).rejects.toMatchObject({ code: "invalid_api_key" });
    }
    expect(store.lookUps).toBe(0);
  });

  it("cannot be pushed out by guesses", async () => {
    const { text } = await addKey();
    await authenticator.authenticate(text);
    for (let guess = 0; guess < 10; guess += 1) {
      await expect(authenticator.authenticate(newApiKey(bytes).text)).rejects.toThrow("not valid");
    }
    const before = store.lookUps;
    await authenticator.authenticate(text);
    expect(store.lookUps).toBe(before);
  });

  it("that was revoked is refused within a second, also when a look-up was under way", async () => {
    const { text, keyId } = await addKey();
    const stop = authenticator.watch();
    await settled();
    const gate = gateOf();
    store.gate = gate.opened;
    const early = authenticator.authenticate(text);
    // The digest is made by other threads, which take as long as they like.
    await vi.waitFor(() => expect(store.lookUps).toBe(1));
    revoke(keyId);
    clock.advance(1_000);
    await settled();
    gate.open();
    await expect(early).resolves.toMatchObject({ keyId });
    await expect(authenticator.authenticate(text)).rejects.toMatchObject({ code: "invalid_api_key" });
    stop();
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("while the store is away", () => {
  it("a key seen before goes on working for a while, and an unknown one is told to come again", async () => {
    const { text } = await addKey();
    await authenticator.authenticate(text);
    store.away = true;
    clock.advance(59_999);
    await expect(authenticator.authenticate(text)).resolves.toMatchObject({ project: "p1" });
    await expect(authenticator.authenticate(newApiKey(bytes).text)).rejects.toMatchObject({
      code: "authentication_unavailable",
      status: 503,
    });
    clock.advance(1);
    await expect(authenticator.authenticate(text)).rejects.toMatchObject({ code: "authentication_unavailable" });
  });

  it("a key seen before waits half a second for a store that does not answer, and then no more", async () => {
    const { text, keyId } = await addKey();
    await authenticator.authenticate(text);
    const gate = gateOf();
    store.gate = gate.opened;
    clock.advance(10_000);
    const first = authenticator.authenticate(text);
    await vi.waitFor(() => expect(store.lookUps).toBe(2));
    await vi.waitFor(() => expect(clock.pendingTimers).toBe(1));
    clock.advance(500);
    await expect(first).resolves.toMatchObject({ keyId });
    const second = authenticator.authenticate(text);
    await vi.waitFor(() => expect(clock.pendingTimers).toBe(1));
    clock.advance(0);
    await expect(second).resolves.toMatchObject({ keyId });
    expect(store.lookUps).toBe(2);
    gate.open();
    await settled();
    expect(clock.pendingTimers).toBe(0);
  });

  it("says so once, and once when it is back", async () => {
    const stop = authenticator.watch();
    await settled();
    store.away = true;
    for (let second = 0; second < 3; second += 1) {
      clock.advance(1_000);
      await settled();
    }
    store.away = false;
    clock.advance(1_000);
    await settled();
    stop();
    expect(lines).toEqual([
      expect.stringContaining("the key store is away; known keys go on working"),
      expect.stringContaining("the key store is back"),
    ]);
  });
});

it("an enrolment token names its host until it is revoked", async () => {
  const token = newHostToken(bytes);
  const tokenSha256 = await sha256(token);
  store.hosts.set(tokenSha256, { host: "gpu-1", tokenSha256, enrolledAtMs: 0, revokedAtMs: null });
  await authenticator.pollRevision();
  expect(await authenticator.authenticateHost(token)).toBe("gpu-1");
  store.hosts.set(tokenSha256, { host: "gpu-1", tokenSha256, enrolledAtMs: 0, revokedAtMs: 5 });
  store.revision += 1;
  await authenticator.pollRevision();
  await expect(authenticator.authenticateHost(token)).rejects.toMatchObject({ code: "host_unauthorized" });
  await expect(authenticator.authenticateHost("sk-host-x")).rejects.toMatchObject({ code: "host_unauthorized" });
});

describe("an authenticator that lives for one request", () => {
  it("knows what those before it found out, and polls for news at most once a second", async () => {
    const { text, keyId } = await addKey();
    for (let request = 0; request < 5; request++) {
      const one = another();
      await one.catchUp();
      expect((await one.authenticate(text)).keyId).toBe(keyId);
    }
    expect([store.lookUps, store.polls]).toEqual([1, 1]);
    const record = store.keys.get(keyId);
    if (record !== undefined) store.keys.set(keyId, { ...record, revokedAtMs: 1 });
    store.revision++;
    clock.advance(1_000);
    const late = another();
    await late.catchUp();
    await expect(late.authenticate(text)).rejects.toMatchObject({ code: "invalid_api_key" });
  });

  it("does not write back what it asked for before another one heard of a revocation (C083)", async () => {
    const { text, keyId } = await addKey();
    await another().catchUp();
    let open: () => void = () => undefined;
    store.gate = new Promise((resolve) => (open = resolve));
    const early = another().authenticate(text);
    await vi.waitFor(() => expect(store.lookUps).toBe(1));
    const record = store.keys.get(keyId);
    if (record !== undefined) store.keys.set(keyId, { ...record, revokedAtMs: 1 });
    store.revision++;
    store.gate = Promise.resolve();
    clock.advance(1_000);
    await another().catchUp();
    open();
    await early;
    await expect(another().authenticate(text)).rejects.toMatchObject({ code: "invalid_api_key" });
  });

  it("waits half a second for news, and serves known keys while the store is away", async () => {
    const { text, keyId } = await addKey();
    await another().authenticate(text);
    store.gate = new Promise(() => undefined);
    const waiting = another().catchUp();
    clock.advance(500);
    await waiting;
    store.gate = Promise.resolve();
    store.away = true;
    clock.advance(20_000);
    const one = another();
    await one.catchUp();
    expect((await one.authenticate(text)).keyId).toBe(keyId);
  });
});
