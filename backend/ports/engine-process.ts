import { z } from "zod";

/** Exit code of an engine that cannot work with what it was given: a restart would not help. */
export const UNUSABLE_EXIT_CODE = 2;

/** What an engine process tells its host over the IPC channel before it ends by itself. */
export const engineFarewellSchema = z.object({
  type: z.literal("failed"),
  /** Says which file and why; for operators. */
  reason: z.string(),
});
export type EngineFarewell = z.infer<typeof engineFarewellSchema>;
