import { parseArgs } from "node:util";

/** What can be measured, in the order in which it is. */
export const FIGURES = [
  "throughput",
  "first-token",
  "hook-instructions",
  "steering",
  "sensing",
  "distinct-steerings",
  "memory",
] as const;
export type Figure = (typeof FIGURES)[number];

/** The models that figures are taken on. */
export const MODELS = ["demo", "85m"] as const;
export type BenchModel = (typeof MODELS)[number];

export interface BenchFlags {
  readonly json: boolean;
  readonly only: readonly Figure[];
  readonly models: readonly BenchModel[];
  readonly streams: readonly number[];
  readonly rounds: number;
  /** Requests of the memory figure. */
  readonly requests: number;
  /** Compute threads of either side. */
  readonly threads: number;
}

/** A command line that says something impossible; the message is all that a person needs. */
export class FlagError extends Error {}

export const HELP = `usage: npm run bench:engine -- [options]

Measures the native engine beside llama.cpp's own server: same model file, threads, prompts and sampling, straight over
HTTP on unix sockets, in alternating order, medians over the rounds. Progress goes to stderr.
The server is built once by: node test/bench/build-llama-server.mjs

  --json             one line of JSON instead of the table
  --quick            3 rounds, 3,000 requests of the memory figure: under ten minutes
  --only LIST        of ${FIGURES.join(", ")}
  --models LIST      of ${MODELS.join(", ")}; 85m is a random-weight model, made once in build/bench
  --streams LIST     parallel streams of the throughput figure (default 1,4,16)
  --rounds N         rounds of every comparison (default 7)
  --requests N       requests of the memory figure (default 10000)
  --threads N        compute threads of either side (default: the physical cores)
  --help             this text`;

const ROUNDS = { full: 7, quick: 3 };
const REQUESTS = { full: 10_000, quick: 3_000 };
const STREAMS = "1,4,16";
const MOST_STREAMS = 64;

/** Null when help was asked for. Throws `FlagError`. */
export function readFlags(args: readonly string[], cores: number): BenchFlags | null {
  const values = parse(args);
  if (values.help) return null;
  const size = values.quick ? "quick" : "full";
  return {
    json: values.json,
    only: listOf("only", values.only, FIGURES),
    models: listOf("models", values.models, MODELS),
    streams: values.streams.split(",").map((word) => whole("streams", word, MOST_STREAMS)),
    rounds: whole("rounds", values.rounds ?? String(ROUNDS[size]), 1_000),
    requests: whole("requests", values.requests ?? String(REQUESTS[size]), 10_000_000),
    threads: whole("threads", values.threads ?? String(cores), 1_024),
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        json: { type: "boolean", default: false },
        quick: { type: "boolean", default: false },
        only: { type: "string", default: FIGURES.join(",") },
        models: { type: "string", default: MODELS.join(",") },
        streams: { type: "string", default: STREAMS },
        rounds: { type: "string" },
        requests: { type: "string" },
        threads: { type: "string" },
        help: { type: "boolean", default: false },
      },
    }).values;
  } catch (error) {
    throw new FlagError(error instanceof Error ? error.message : String(error));
  }
}

function whole(name: string, text: string, most: number): number {
  const value = Number(text);
  if (/^\d+$/u.test(text) && value >= 1 && value <= most) return value;
  throw new FlagError(`--${name} must be a whole number from 1 to ${most}, not '${text}'`);
}

function listOf<Name extends string>(flag: string, text: string, known: readonly Name[]): Name[] {
  const words = text.split(",");
  const strange = words.find((word) => known.every((name) => name !== word));
  if (strange !== undefined) {
    throw new FlagError(`--${flag} knows ${known.join(", ")}; it does not know '${strange}'`);
  }
  return known.filter((name) => words.includes(name));
}
