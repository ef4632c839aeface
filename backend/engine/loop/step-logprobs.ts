import type { TokenLogprobs } from "../../native/binding.ts";

/** The log-probabilities of one step by job, in the order of the job's records. */
export function logprobsByJob(logprobs: readonly TokenLogprobs[]): Map<number, TokenLogprobs[]> {
  const byJob = new Map<number, TokenLogprobs[]>();
  for (const one of logprobs) {
    const list = byJob.get(one.jobId);
    if (list === undefined) byJob.set(one.jobId, [one]);
    else list.push(one);
  }
  return byJob;
}
