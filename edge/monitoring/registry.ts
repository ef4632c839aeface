/**
 * Counters, gauges and histograms in Prometheus' text form. Label values come from closed sets only: whoever records
 * folds names that callers make up, so that series do not grow without end (case C105).
 */

export type Labels = Readonly<Record<string, string>>;

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  lines(): string[];
}

/** A value for each combination of labels, kept in the order of first use. */
class Series<Value> {
  readonly #values = new Map<string, Value>();

  update(labels: Labels, change: (value: Value | undefined) => Value): void {
    const key = labelText(labels);
    this.#values.set(key, change(this.#values.get(key)));
  }

  entries(): Iterable<[string, Value]> {
    return this.#values.entries();
  }

  clear(): void {
    this.#values.clear();
  }
}

export class Counter {
  readonly #series = new Series<number>();

  /** `amount` is at least 0; a counter never falls while the process lives. */
  add(amount: number, labels: Labels = NO_LABELS): void {
    this.#series.update(labels, (value) => (value ?? 0) + amount);
  }

  *samples(name: string): Iterable<string> {
    for (const [labels, value] of this.#series.entries()) yield `${name}${braced(labels)} ${numberText(value)}`;
  }
}

export class Gauge {
  readonly #series = new Series<number>();

  set(value: number, labels: Labels = NO_LABELS): void {
    this.#series.update(labels, () => value);
  }

  add(amount: number, labels: Labels = NO_LABELS): void {
    this.#series.update(labels, (value) => (value ?? 0) + amount);
  }

  /** Forgets every series, for gauges that are filled anew at each scrape: what is gone must not linger. */
  clear(): void {
    this.#series.clear();
  }

  *samples(name: string): Iterable<string> {
    for (const [labels, value] of this.#series.entries()) yield `${name}${braced(labels)} ${numberText(value)}`;
  }
}

interface HistogramValue {
  readonly buckets: number[];
  sum: number;
  count: number;
}

export class Histogram {
  readonly #bounds: readonly number[];
  readonly #series = new Series<HistogramValue>();

  /** Upper bounds, ascending; the bucket without a bound is added. */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
  }

  observe(value: number, labels: Labels = NO_LABELS): void {
    if (!Number.isFinite(value)) return;
    this.#series.update(labels, (present) => {
      const histogram = present ?? { buckets: this.#bounds.map(() => 0), sum: 0, count: 0 };
      const place = this.#bounds.findIndex((bound) => value <= bound);
      if (place !== -1) histogram.buckets[place] = (histogram.buckets[place] ?? 0) + 1;
      histogram.sum += value;
      histogram.count++;
      return histogram;
    });
  }

  *samples(name: string): Iterable<string> {
    for (const [labels, { buckets, sum, count }] of this.#series.entries()) {
      let cumulative = 0;
      for (const [place, bound] of this.#bounds.entries()) {
        cumulative += buckets[place] ?? 0;
        yield `${name}_bucket${braced(joined(labels, `le="${bound}"`))} ${cumulative}`;
      }
      yield `${name}_bucket${braced(joined(labels, 'le="+Inf"'))} ${count}`;
      yield `${name}_sum${braced(labels)} ${numberText(sum)}`;
      yield `${name}_count${braced(labels)} ${count}`;
    }
  }
}

/** The families of one program and their text. */
export class MetricsRegistry {
  readonly #families: Family[] = [];

  counter(name: string, help: string): Counter {
    return this.#added(name, help, "counter", new Counter());
  }

  gauge(name: string, help: string): Gauge {
    return this.#added(name, help, "gauge", new Gauge());
  }

  histogram(name: string, help: string, bounds: readonly number[]): Histogram {
    return this.#added(name, help, "histogram", new Histogram(bounds));
  }

  /** Exposition format 0.0.4. */
  text(): string {
    const lines: string[] = [];
    for (const family of this.#families) {
      lines.push(`# HELP ${family.name} ${family.help}`, `# TYPE ${family.name} ${family.type}`, ...family.lines());
    }
    return `${lines.join("\n")}\n`;
  }

  #added<Metric extends { samples(name: string): Iterable<string> }>(
    name: string,
    help: string,
    type: Family["type"],
    metric: Metric,
  ): Metric {
    this.#families.push({ name, help, type, lines: () => [...metric.samples(name)] });
    return metric;
  }
}

export const METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const NO_LABELS: Labels = {};

function labelText(labels: Labels): string {
  if (labels === NO_LABELS) return "";
  let text = "";
  for (const name in labels) {
    const pair = `${name}="${escaped(labels[name] ?? "")}"`;
    text = text === "" ? pair : `${text},${pair}`;
  }
  return text;
}

/** A gauge of nothing is 0 here: NaN and Infinity break dashboards (case C106). */
function numberText(value: number): string {
  return Number.isFinite(value) ? String(value) : "0";
}

const SPECIAL = /[\\"\n]/;
const escaped = (value: string): string =>
  SPECIAL.test(value) ? value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n") : value;
const braced = (labels: string): string => (labels === "" ? "" : `{${labels}}`);
const joined = (labels: string, more: string): string => (labels === "" ? more : `${labels},${more}`);
