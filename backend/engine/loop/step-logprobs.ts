/** What one step tells of chances by job, in the order of the job's records. */
export function logprobsByJob<One extends { readonly jobId: number }>(logprobs: readonly One[]): Map<number, One[]> {
  const byJob = new Map<number, One[]>();
  for (const one of logprobs) {
    const list = byJob.get(one.jobId);
    if (list === undefined) byJob.set(one.jobId, [one]);
    else list.push(one);
  }
  return byJob;
}
