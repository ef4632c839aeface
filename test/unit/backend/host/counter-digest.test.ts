import { expect, it } from "vitest";
import { CounterDigest } from "../../../../backend/host/counter-digest.ts";

const counter = (hour: number, requests: number) => ({
  epoch: 1,
  hour,
  requests,
  computed_prompt: 0,
  cached_prompt: 0,
  computed_completion: 0,
});

it("tells an edge only the counters that changed, and everything again after a failure or a minute", () => {
  const digest = new CounterDigest();
  const both = [counter(0, 1), counter(1, 1)];
  expect(digest.changed(both, 0)).toEqual(both);
  expect(digest.changed(both, 10)).toEqual([]);
  const later = [counter(0, 1), counter(1, 2)];
  expect(digest.changed(later, 20)).toEqual([counter(1, 2)]);
  digest.reset();
  expect(digest.changed(later, 30)).toEqual(later);
  expect(digest.changed(later, 60_029)).toEqual([]);
  expect(digest.changed(later, 60_030)).toEqual(later);
});
