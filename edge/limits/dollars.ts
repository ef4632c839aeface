/** Nano-dollars as decimal dollars without trailing zeros, exactly. */
export function dollars(nanoUsd: bigint): string {
  const sign = nanoUsd < 0n ? "-" : "";
  const whole = nanoUsd < 0n ? -nanoUsd : nanoUsd;
  const fraction = (whole % 1_000_000_000n).toString().padStart(9, "0").replace(/0+$/, "");
  return `${sign}${whole / 1_000_000_000n}${fraction === "" ? "" : `.${fraction}`}`;
}
