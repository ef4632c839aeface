import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TransientMap } from "../../../shared/transient-map.ts";

interface Numbered {
  readonly number: number;
}

type Step = (map: TransientMap<number, Numbered>, model: Map<number, Numbered>) => readonly unknown[];

const key = fc.integer({ min: 0, max: 12 });

/** Each does the same to both and answers with what they said. */
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.tuple(key, fc.nat()).map(([at, number]): Step => (map, model) => {
    map.set(at, { number });
    model.set(at, { number });
    return [null, null];
  }),
  key.map((at): Step => (map, model) => [map.delete(at), model.delete(at)]),
  key.map((at): Step => (map, model) => {
    const taken = [map.take(at), model.get(at)];
    model.delete(at);
    return taken;
  }),
  fc.constant<Step>((map, model) => {
    map.clear();
    model.clear();
    return [null, null];
  }),
);

describe("TransientMap", () => {
  it("behaves as a Map does, whatever is done to it", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const map = new TransientMap<number, Numbered>();
        const model = new Map<number, Numbered>();
        for (const act of steps) {
          const [said, expected] = act(map, model);
          expect(said).toEqual(expected);
          expect(map.size).toBe(model.size);
          expect([...map]).toEqual([...model]);
          expect([...map.values()]).toEqual([...model.values()]);
          expect(map.first()).toEqual([...model.values()][0]);
          for (let at = 0; at <= 12; at++) expect([map.has(at), map.get(at)]).toEqual([model.has(at), model.get(at)]);
        }
      }),
    );
  });

  it("goes on with what is left when entries are deleted during an iteration, as a Map does", () => {
    const map = new TransientMap<string, Numbered>();
    for (const [place, name] of ["a", "b", "c"].entries()) map.set(name, { number: place });
    const seen: number[] = [];
    for (const [name, { number }] of map) {
      seen.push(number);
      if (name === "a") map.delete("b");
    }
    expect(seen).toEqual([0, 2]);
  });
});
