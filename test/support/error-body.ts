import { z } from "zod";

const errorBodySchema = z.strictObject({
  error: z.strictObject({
    message: z.string().min(1),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string(),
  }),
});

/** The error of an answer, which must be the OpenAI envelope exactly. */
export async function errorBodyOf(response: Response) {
  return errorBodySchema.parse(await response.json()).error;
}
