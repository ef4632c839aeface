import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import {
  MAX_WATCH_LISTS,
  type MonitoringOptions,
  watchListBodySchema,
  type WatchListDefinition,
  watchListIdSchema,
} from "../../ports/watch-lists.ts";
import { checkFeatureIndex, resolveSae } from "../../sae/attached-sae.ts";
import type { LoadedSae } from "../engine-model.ts";
import type { GenerationTask, RequestLabel, TaskSink } from "../loop/generation-task.ts";
import { WatchList } from "./watch-list.ts";
import { WatchedRequest, WatchingSink } from "./watched-request.ts";

export interface WatchingDeps {
  readonly options: MonitoringOptions;
  /** Those attached at the moment. */
  readonly saes: () => readonly LoadedSae[];
  readonly layerCount: number;
  readonly tokenBytes: (token: number) => Uint8Array;
  readonly clock: Pick<Clock, "nowMs" | "monotonicMs">;
}

/** A task as the loop gets it, and who hears of it. */
export interface LoopTask {
  readonly task: GenerationTask;
  readonly sink: TaskSink;
}

interface Watched {
  readonly list: WatchList;
  readonly sae: LoadedSae;
}

/** The watch lists of this engine: each senses its features in every task that begins while it is here. */
export class Watching {
  readonly #deps: WatchingDeps;
  readonly #lists = new Map<string, WatchList>();
  /** Wall time without its steps, since the windows are filled by it. */
  readonly nowMs: () => number;

  constructor(deps: WatchingDeps, definitions: readonly WatchListDefinition[]) {
    const { clock, options } = deps;
    this.#deps = deps;
    const startMs = clock.nowMs() - clock.monotonicMs();
    this.nowMs = () => Math.round(startMs + clock.monotonicMs());
    for (const definition of definitions) {
      this.#lists.set(definition.id, new WatchList(definition, options, this.nowMs()));
    }
  }

  get lists(): readonly WatchList[] {
    this.#renew();
    return [...this.#lists.values()];
  }

  /** Throws `watch_list_not_found`. */
  list(id: string): WatchList {
    this.#renew();
    const list = this.#lists.get(id);
    if (list !== undefined) return list;
    throw new ApiError("watch_list_not_found", { message: `There is no watch list '${id.slice(0, 64)}'.` });
  }

  /** Sets a list, which begins anew unless it says what it said before. Throws an ApiError that names the member. */
  put(id: string, document: unknown): WatchList {
    const definition = this.#settled(id, document);
    const before = this.#lists.get(id);
    if (before !== undefined && JSON.stringify(before.definition) === JSON.stringify(definition)) return before;
    if (before === undefined && this.#lists.size >= MAX_WATCH_LISTS) {
      throw new ApiError("invalid_value", {
        message: `A model has at most ${MAX_WATCH_LISTS} watch lists.`,
        param: "id",
      });
    }
    return this.#begin(definition);
  }

  #begin(definition: WatchListDefinition): WatchList {
    this.#lists.get(definition.id)?.history.close();
    const list = new WatchList(definition, this.#deps.options, this.nowMs());
    this.#lists.set(definition.id, list);
    return list;
  }

  /** Figures of two SAEs must not be mixed: a list whose SAE was swapped begins anew. */
  #renew(): void {
    for (const list of this.#lists.values()) {
      const sae = this.#saeOf(list.definition);
      if (sae !== null && !list.goesOnWith(sae)) this.#begin(list.definition);
    }
  }

  remove(id: string): void {
    this.list(id).history.close();
    this.#lists.delete(id);
  }

  /** Why a list senses nothing at the moment, or null. */
  idleReason({ definition }: WatchList): string | null {
    const sae = this.#saeOf(definition);
    if (sae === null) return `The SAE '${definition.sae_id}' is not attached.`;
    const beyond = definition.features.find((feature) => feature >= sae.featureCount);
    return beyond === undefined
      ? null
      : `The SAE '${sae.id}' has features 0 to ${sae.featureCount - 1}, not ${beyond}.`;
  }

  saeOf({ definition }: WatchList): LoadedSae | null {
    return this.#saeOf(definition);
  }

  /** What a request that begins now must hold. */
  saesInUse(): LoadedSae[] {
    return this.#watched().map(({ sae }) => sae);
  }

  /** How the tasks of one request are watched; as they are where there is no list. */
  begin(label: RequestLabel | null): (task: GenerationTask, sink: TaskSink) => LoopTask {
    const watched = this.#watched();
    if (watched.length === 0) return (task, sink) => ({ task, sink });
    const { options } = this.#deps;
    const request = new WatchedRequest({
      label,
      nowMs: this.nowMs,
      maxEvents: options.max_events_per_request,
      textOf: options.context_text ? (tokens) => this.#textOf(tokens) : null,
    });
    const lists = watched.map(({ list }) => list);
    return (task, sink) => {
      const { tokens } = task.labels;
      const own = task.job.sensing;
      const sensing = [...own, ...watched.map((one) => this.#plan(one, tokens.length))];
      return {
        task: { ...task, job: { ...task.job, sensing } },
        sink: new WatchingSink(request, { sink, tokens, ownPlans: own.length, lists }),
      };
    };
  }

  close(): void {
    for (const { history } of this.#lists.values()) history.close();
  }

  #plan({ list, sae }: Watched, promptTokens: number) {
    const { features, read_point: readPoint } = list.definition;
    return {
      sae: sae.native,
      layer: sae.layer,
      // After the last block llama.cpp keeps the prompt's last row alone; asking for more would cost logits for all.
      fromPosition: sae.layer === this.#deps.layerCount - 1 ? promptTokens - 1 : 0,
      toPosition: -1,
      readPoint,
      features: Int32Array.from(features),
      topK: features.length,
      optional: true,
    };
  }

  #watched(): Watched[] {
    this.#renew();
    return [...this.#lists.values()].flatMap((list) => {
      const sae = this.#saeOf(list.definition);
      return sae === null || this.idleReason(list) !== null ? [] : [{ list, sae }];
    });
  }

  #saeOf({ sae_id: id }: WatchListDefinition): LoadedSae | null {
    return this.#deps.saes().find((sae) => sae.id === id) ?? null;
  }

  #settled(id: string, document: unknown): WatchListDefinition {
    const checkedId = watchListIdSchema.safeParse(id);
    if (!checkedId.success) {
      throw new ApiError("invalid_value", {
        message: `'id' ${checkedId.error.issues[0]?.message ?? ""}.`,
        param: "id",
      });
    }
    const read = watchListBodySchema.safeParse(document);
    if (!read.success) throw apiErrorOfZod(read.error);
    const { features, threshold, context_tokens: reach, read_point: readPoint } = read.data;
    const sae = resolveSae(this.#deps.saes(), read.data.sae_id, "sae_id");
    features.forEach((feature, place) => {
      const param = `features[${place}]`;
      checkFeatureIndex(sae, feature, param);
      if (features.indexOf(feature) === place) return;
      throw new ApiError("invalid_value", { message: `Feature ${feature} is named twice.`, param });
    });
    return {
      id,
      sae_id: sae.id,
      features,
      threshold: threshold ?? null,
      context_tokens: reach ?? this.#deps.options.context_tokens,
      read_point: readPoint ?? "post_steering",
    };
  }

  /** Bytes that are no whole character at either end are shown as the replacement character. */
  #textOf(tokens: readonly number[]): string {
    return Buffer.concat(tokens.map((token) => this.#deps.tokenBytes(token))).toString("utf8");
  }
}
