/** A Prometheus histogram: counts at or under each bound, and the sum. */
export class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  add(sample: number): void {
    this.#sum += sample;
    this.#count++;
    this.#bounds.forEach((bound, place) => {
      if (sample <= bound) this.#counts[place] = (this.#counts[place] ?? 0) + 1;
    });
  }

  lines(name: string, label: string): string[] {
    return [
      `# TYPE ${name} histogram`,
      ...this.#bounds.map((bound, place) => `${name}_bucket{le="${bound}",${label}} ${this.#counts[place] ?? 0}`),
      `${name}_bucket{le="+Inf",${label}} ${this.#count}`,
      `${name}_sum{${label}} ${this.#sum}`,
      `${name}_count{${label}} ${this.#count}`,
    ];
  }
}
