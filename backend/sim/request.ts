import { createHash } from "node:crypto";
import { z } from "zod";
import { ApiError } from "../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../shared/errors/zod-error.ts";
import { chatRequestSchema } from "../../shared/openai/chat.ts";
import { completionRequestSchema } from "../../shared/openai/completions.ts";
import { embeddingRequestSchema } from "../../shared/openai/embeddings.ts";
import { streamOptionsFault } from "../../shared/openai/sampling.ts";
import type { AttachedSae } from "../../shared/protocol/report.ts";
import { steeringHash } from "../../shared/steering/canonical-form.ts";
import { positionsText } from "../../shared/steering/positions.ts";
import { type AppliedSteering, receiptOf } from "../../shared/steering/receipt.ts";
import {
  changesNothing,
  clampEdit,
  effectiveSets,
  type Steering,
  steeringSchema,
} from "../../shared/steering/steering-set.ts";
import { tokensOf } from "./text.ts";

/** A chat message costs this many tokens beside its words, as a template's marks would. */
const TOKENS_PER_MESSAGE = 3;
const MARK = "<|mark|>";

const extrasSchema = z.looseObject({ steering: steeringSchema.nullish(), sim: z.unknown().optional() });

/** One request that generates, read and checked. */
export interface GenerationRequest {
  readonly kind: "chat" | "completion";
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly prompt: readonly string[];
  readonly maxTokens: number | null;
  readonly seed: number | null;
  readonly ignoreEnd: boolean;
  readonly receipt: string;
  readonly sim: unknown;
}

export interface EmbeddingJob {
  readonly model: string;
  readonly inputs: readonly (readonly string[])[];
  readonly base64: boolean;
  readonly sim: unknown;
}

export function readChat(document: unknown, saes: readonly AttachedSae[]): GenerationRequest {
  const request = read(chatRequestSchema, document);
  const prompt = request.messages.flatMap(({ content }) => [
    ...Array.from({ length: TOKENS_PER_MESSAGE }, () => MARK),
    ...tokensOf(textOf(content)),
  ]);
  const maxTokens = request.max_completion_tokens ?? request.max_tokens ?? null;
  return { kind: "chat", prompt, maxTokens, ...common(request, document, saes) };
}

export function readCompletion(document: unknown, saes: readonly AttachedSae[]): GenerationRequest {
  const request = read(completionRequestSchema, document);
  const prompt = promptTokens(request.prompt);
  return { kind: "completion", prompt, maxTokens: request.max_tokens ?? null, ...common(request, document, saes) };
}

export function readEmbedding(document: unknown): EmbeddingJob {
  const request = read(embeddingRequestSchema, document);
  const { input } = request;
  const list =
    typeof input === "string" ? [input] : input.every((entry) => typeof entry === "number") ? [input] : input;
  return {
    model: request.model,
    inputs: list.map((entry) => (typeof entry === "string" ? tokensOf(entry) : [entry].flat().map(String))),
    base64: request.encoding_format === "base64",
    sim: read(extrasSchema, document).sim,
  };
}

interface Sampled {
  readonly model: string;
  readonly stream?: boolean | null | undefined;
  readonly stream_options?: { readonly include_usage?: boolean | null | undefined } | null | undefined;
  readonly seed?: number | null | undefined;
  readonly ignore_eos?: boolean | null | undefined;
  readonly n?: number | null | undefined;
}

function common(request: Sampled, document: unknown, saes: readonly AttachedSae[]) {
  if (streamOptionsFault(request)) {
    throw new ApiError("invalid_value", { param: "stream_options", message: "'stream_options' needs 'stream: true'." });
  }
  if ((request.n ?? 1) > 1) throw new ApiError("unsupported_field", { param: "n" });
  const { steering, sim } = read(extrasSchema, document);
  return {
    model: request.model,
    stream: request.stream === true,
    includeUsage: request.stream_options?.include_usage === true,
    seed: request.seed ?? null,
    ignoreEnd: request.ignore_eos === true,
    receipt: receiptOf(appliedOf(steering, saes)),
    sim,
  };
}

/** What an engine with these SAEs would have applied; the text of a scripted engine does not change by it. */
function appliedOf(steering: Steering | null | undefined, saes: readonly AttachedSae[]): AppliedSteering[] {
  return effectiveSets(steering).map((set) => {
    const sae = saes.find(({ id }) => id === (set.sae_id ?? saes[0]?.id));
    if (sae === undefined) throw new ApiError("sae_not_available", { param: "steering.sae_id" });
    const wrong = set.features.find(({ index }) => index >= sae.d_sae);
    if (wrong !== undefined) throw new ApiError("invalid_feature_index", { param: "steering.features" });
    const edits = set.features.map(({ index, strength, mode, unit, when }) => {
      const { strength: bounded, clamped } = clampEdit(mode ?? "add", strength ?? 0, null);
      const condition = when ?? set.when ?? null;
      return { index, mode: mode ?? "add", unit: unit ?? "raw", strength: bounded, clamped, when: condition };
    });
    const positions = positionsText(set.positions);
    const excludesSpecialTokens = set.exclude_special_tokens ?? false;
    const hash = steeringHash(
      [{ saeId: sae.id, saeDigest: sae.digest, layer: sae.layer, features: edits, positions, excludesSpecialTokens }],
      (text) => createHash("sha256").update(text).digest("hex"),
    );
    const features = edits.filter(({ mode, strength }) => !changesNothing(mode, strength)).length;
    return { saeId: sae.id, layer: sae.layer, features, hash, clamped: edits.some(({ clamped }) => clamped) };
  });
}

function read<Schema extends z.ZodType>(schema: Schema, document: unknown): z.output<Schema> {
  const result = schema.safeParse(document);
  if (!result.success) throw apiErrorOfZod(result.error);
  return result.data;
}

function textOf(content: string | readonly { type: string; text?: unknown }[] | null | undefined): string {
  if (typeof content === "string") return content;
  return (content ?? []).map(({ text }) => (typeof text === "string" ? text : "")).join(" ");
}

function promptTokens(prompt: string | readonly (number | string | readonly number[])[]): string[] {
  if (typeof prompt === "string") return tokensOf(prompt);
  if (prompt.every((entry) => typeof entry === "number")) return prompt.map(String);
  const [first] = prompt;
  if (prompt.length > 1) throw new ApiError("unsupported_field", { param: "prompt", message: "One prompt a request." });
  return typeof first === "string" ? tokensOf(first) : [first ?? []].flat().map(String);
}
