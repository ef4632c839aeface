import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ResidualReader } from "../../inspect/residual-reader.ts";
import type { NativeModel } from "../../native/binding.ts";
import type { LoadedSae } from "../engine-model.ts";
import { FeatureRanking, MAX_RANKED_TOKENS, type RankedFeature, type RankRequest } from "./feature-rank.ts";

/** Rankings that may wait for their turn. */
const MAX_WAITING = 4;
/** Rows encoded at a time: a large SAE must not hold the event loop for seconds. */
const ROWS_AT_ONCE = 16;

type RowReader = Pick<ResidualReader, "rows" | "dispose">;

export interface RankerDeps {
  readonly native: Pick<NativeModel, "info" | "tokenize">;
  /** A context of its own for texts of so many tokens. */
  readonly openReader: (contextTokens: number) => Promise<RowReader>;
  /** Longest text in tokens. */
  readonly contextLength: number;
  /** Keeps an SAE alive, though it be detached, until the returned function is called. */
  readonly hold: (saes: Iterable<LoadedSae>) => () => void;
}

export interface Ranking {
  readonly features: readonly RankedFeature[];
  /** What was computed, of all texts together. */
  readonly tokens: number;
}

/** Whose ranking it is, and who hears what it computes. */
export interface RankingCaller {
  /** Aborted when the caller is gone, which ends the ranking early. */
  readonly gone: AbortSignal;
  /** Once, when it is known how many tokens all texts have, before any of them is computed. */
  readonly begin: (promptTokens: number) => void;
  /** After each text: the tokens of all that were computed so far. */
  readonly progress: (computedTokens: number) => void;
}

interface TokenText {
  readonly side: "positive" | "negative";
  readonly tokens: Int32Array;
}

/** Runs texts through the model in a context of its own, one ranking at a time, beside everybody's answers. */
export class FeatureRanker {
  readonly #deps: RankerDeps;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #closed = false;

  constructor(deps: RankerDeps) {
    this.#deps = deps;
  }

  /** Throws an ApiError for texts that are too long, or when too many rankings wait. */
  async rank(sae: LoadedSae, request: RankRequest, caller: RankingCaller): Promise<Ranking> {
    const texts = this.#tokenized(request);
    if (this.#closed) throw new ApiError("draining", { source: "backend" });
    if (this.#waiting > MAX_WAITING) throw new ApiError("engine_busy", { source: "backend", retryAfterSeconds: 5 });
    const tokens = texts.reduce((total, text) => total + text.tokens.length, 0);
    caller.begin(tokens);
    this.#waiting += 1;
    const letGo = this.#deps.hold([sae]);
    const turn = this.#last.then(() => this.#run(sae, texts, request.limit, caller));
    this.#last = turn.catch(() => undefined);
    try {
      return { features: await turn, tokens };
    } finally {
      letGo();
      this.#waiting -= 1;
    }
  }

  /** Resolves when nothing runs any more; what waits is refused. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#last;
  }

  #tokenized({ positive, negative }: RankRequest): TokenText[] {
    const { native, contextLength } = this.#deps;
    let total = 0;
    const tokenize = (side: TokenText["side"]) => (text: string, place: number) => {
      const tokens = native.tokenize(text, true, true);
      total += tokens.length;
      const param = `${side}[${place}]`;
      if (tokens.length === 0) throw new ApiError("invalid_value", { message: `'${param}' has no tokens.`, param });
      if (tokens.length >= contextLength) {
        throw new ApiError("context_length_exceeded", {
          message: `'${param}' has ${tokens.length} tokens, but the model's window is ${contextLength}.`,
          param,
        });
      }
      return { side, tokens };
    };
    const texts = [...positive.map(tokenize("positive")), ...negative.map(tokenize("negative"))];
    if (total <= MAX_RANKED_TOKENS) return texts;
    throw new ApiError("invalid_value", {
      message: `The texts have ${total} tokens together; at most ${MAX_RANKED_TOKENS} are ranked.`,
      param: "positive",
    });
  }

  async #run(
    sae: LoadedSae,
    texts: readonly TokenText[],
    limit: number,
    { gone, progress }: RankingCaller,
  ): Promise<RankedFeature[]> {
    if (this.#closed) throw new ApiError("draining", { source: "backend" });
    const reader = await this.#deps.openReader(Math.max(...texts.map(({ tokens }) => tokens.length)));
    try {
      const ranking = new FeatureRanking(sae.featureCount);
      let computed = 0;
      for (const { side, tokens } of texts) {
        if (gone.aborted) throw new ApiError("client_closed_request");
        if (this.#closed) throw new ApiError("draining", { source: "backend" });
        const rows = await reader.rows(tokens, sae.layer);
        computed += tokens.length;
        progress(computed);
        ranking.add(side, await this.#encoded(rows, sae, tokens));
      }
      return ranking.ranked(limit);
    } finally {
      await reader.dispose();
    }
  }

  /** The row of a beginning-of-text token says nothing about the text, unless there is no other. */
  async #encoded(rows: readonly Float32Array[], sae: LoadedSae, tokens: Int32Array): Promise<Float32Array[]> {
    const skipped = rows.length > 1 && tokens[0] === this.#deps.native.info.bosToken ? 1 : 0;
    const { embeddingWidth: width, featureCount } = sae;
    const encoded: Float32Array[] = [];
    for (let start = skipped; start < rows.length; start += ROWS_AT_ONCE) {
      const some = rows.slice(start, start + ROWS_AT_ONCE);
      const joined = new Float32Array(some.length * width);
      some.forEach((row, place) => joined.set(row, place * width));
      const values = sae.native.encode(joined);
      some.forEach((_, place) => encoded.push(values.subarray(place * featureCount, (place + 1) * featureCount)));
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    return encoded;
  }
}
