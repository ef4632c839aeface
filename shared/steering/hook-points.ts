/** Where the residual stream may be read and changed, by TransformerLens's name for layer L (zero based). */
export function residualPostHookPoint(layer: number): string {
  return `blocks.${layer}.hook_resid_post`;
}

const RESIDUAL = /^blocks\.(\d+)\.hook_resid_(pre|post)$/;

/**
 * The block after which the residual of a hook point stands: `resid_pre` of layer L is `resid_post` of L-1.
 * Null for anything that is not a residual point, and for `resid_pre` of layer 0, which no block precedes.
 */
export function layerOfHookPoint(hookPoint: string): number | null {
  const match = RESIDUAL.exec(hookPoint);
  if (match === null) return null;
  const layer = Number(match[1]);
  if (match[2] === "post") return layer;
  return layer === 0 ? null : layer - 1;
}
