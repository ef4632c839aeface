import { ApiError } from "../../shared/errors/api-error.ts";
import { mergedRanges } from "../../shared/steering/positions.ts";
import type { SteeringPositions } from "../../shared/steering/steering-set.ts";

/** What the positions of an edit are measured against. */
export interface SteeringScope {
  readonly promptTokens: number;
  /** Largest number of tokens that may be sampled. */
  readonly maxTokens: number;
  /** The model's control tokens, asked for only when a set leaves them out. */
  readonly specialTokens: () => Int32Array;
}

/** Half open; an end of -1 is open. */
export interface EditRange {
  readonly from: number;
  readonly to: number;
}

/** Which rows a set of edits reaches. */
export class EditReach {
  /** Ascending, apart, at least one. */
  readonly ranges: readonly EditRange[];
  /** Empty where no token is left out. */
  readonly excludedTokens: Int32Array;
  readonly #excluded: ReadonlySet<number>;

  constructor(ranges: readonly EditRange[], excludedTokens: Int32Array) {
    this.ranges = ranges;
    this.excludedTokens = excludedTokens;
    this.#excluded = new Set(excludedTokens);
  }

  get isEverywhere(): boolean {
    const [only, ...others] = this.ranges;
    return only?.from === 0 && only.to === -1 && others.length === 0 && this.excludedTokens.length === 0;
  }

  includes(position: number, token: number): boolean {
    if (this.#excluded.has(token)) return false;
    return this.ranges.some(({ from, to }) => position >= from && (to < 0 || position < to));
  }

  /** Whether a position below `end` lies in a range. */
  beginsBefore(end: number): boolean {
    return (this.ranges[0]?.from ?? 0) < end;
  }
}

/**
 * A prompt's rows are those of its tokens; rows of the completion are those of sampled tokens, which go through the
 * model one after the other, but for the last. The first sampled token comes from the last prompt row.
 */
export function reachOf(
  positions: SteeringPositions | null | undefined,
  excludesSpecialTokens: boolean,
  scope: SteeringScope,
  param: string,
): EditReach {
  return new EditReach(
    rangesOf(positions ?? "all", scope, param),
    excludesSpecialTokens ? scope.specialTokens() : new Int32Array(0),
  );
}

function rangesOf(
  positions: SteeringPositions,
  { promptTokens, maxTokens }: SteeringScope,
  param: string,
): EditRange[] {
  if (positions === "all") return [{ from: 0, to: -1 }];
  if (positions === "prompt") return [{ from: 0, to: promptTokens }];
  if (positions === "completion") return [{ from: promptTokens, to: -1 }];
  const last = promptTokens + maxTokens - 2;
  [positions].flat().forEach(({ start }, place) => {
    if (start <= last) return;
    const member = Array.isArray(positions) ? `${param}[${place}].start` : `${param}.start`;
    throw new ApiError("invalid_steering", {
      message: `'${member}' is ${start}, but this request has positions 0 to ${last} only.`,
      param: member,
    });
  });
  return mergedRanges([positions].flat()).map(({ start, end }) => ({ from: start, to: end }));
}
