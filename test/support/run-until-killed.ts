/** Runs one endless job with an account, tells after some steps how many tokens came, and goes on until it is killed. */
import { DEMO_F32, GREEDY, nativeAddon, openModel } from "./native-harness.ts";

const TOLD_AFTER_TOKENS = 20;

const accounts = (await nativeAddon()).openAccountBoard(process.argv[2] ?? "");
const model = await openModel(DEMO_F32);
let tokens = 0;
const context = await model.createContext({
  sequenceCount: 1,
  cellCount: 4_096,
  batchTokens: 32,
  threads: 1,
  flashAttention: true,
  kvType: "q8_0",
  accounts,
  onStep: ({ records }) => {
    if (records.length === 0) return;
    tokens++;
    if (tokens === TOLD_AFTER_TOKENS) process.stdout.write(`${tokens}\n`);
  },
});
context.submit({
  jobId: 1,
  sequenceId: 0,
  copyFromSequenceId: 0,
  keepTokens: 0,
  tokens: Int32Array.of(300, 301, 302),
  maxTokens: 4_000,
  ignoreEndOfGeneration: true,
  stopStrings: [],
  sampler: GREEDY,
  logprobs: -1,
  promptLogprobs: false,
  renderedTokens: new Int32Array(0),
  edits: [],
  sensing: [],
  capture: [],
  accountRecord: accounts.claim("req_killed.1", 3, 0),
});
