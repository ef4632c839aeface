/** `420 ms`, `3.2 s`, `4 min`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return ms < 120_000 ? `${(ms / 1_000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`;
}

/** Of a score: three places are enough to see which was less. */
export function seconds(value: number): string {
  return value >= 1_000 ? "> 999" : value.toFixed(3);
}

export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** `0 B`, `12 KiB`, `3.4 MiB`. */
export function bytes(count: number): string {
  if (count < 1_024) return `${count} B`;
  return count < 2 ** 20 ? `${Math.round(count / 1_024)} KiB` : `${(count / 2 ** 20).toFixed(1)} MiB`;
}
