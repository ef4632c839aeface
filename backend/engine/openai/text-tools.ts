import { z } from "zod";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { EngineTextPath } from "../../ports/engine-events.ts";
import type { EngineModel } from "../engine-model.ts";
import { toolUseOf } from "../tools/tool-use.ts";
import { checkedTokenIds } from "./completion-request.ts";
import type { RequestBody } from "./request-body.ts";
import { engineChatSchema } from "./request-schemas.ts";

const tokenizeSchema = z.looseObject({
  content: z.string(),
  add_special: z.boolean().default(false),
  parse_special: z.boolean().default(true),
  with_pieces: z.boolean().default(false),
});
const detokenizeSchema = z.looseObject({ tokens: z.array(z.int().min(0)) });
const templateSchema = engineChatSchema.extend({ model: z.string().optional() });

/** The answer's body. Throws an ApiError that names the member at fault. */
export function answerTextTool(path: EngineTextPath, body: RequestBody, model: EngineModel): object {
  if (path === "/tokenize") return tokenize(read(tokenizeSchema, body), model);
  if (path === "/detokenize") {
    const { tokens } = read(detokenizeSchema, body);
    const ids = checkedTokenIds(tokens, model.native.info.vocabularySize, "tokens");
    return { content: Buffer.concat(Array.from(ids, (id) => model.native.tokenBytes(id, true))).toString("utf8") };
  }
  const request = read(templateSchema, body);
  const { text, tokens } = model.chat.prompt(request.messages, {
    templateArguments: request.chat_template_kwargs ?? null,
    tools: toolUseOf(request, model.native),
    schema: null,
  });
  return { prompt: text, tokens: [...tokens] };
}

function tokenize(request: z.infer<typeof tokenizeSchema>, { native }: EngineModel): object {
  const ids = [...native.tokenize(request.content, request.add_special, request.parse_special)];
  if (!request.with_pieces) return { tokens: ids };
  return { tokens: ids.map((id) => ({ id, piece: pieceOf(native.tokenBytes(id, true)) })) };
}

/** Text where the bytes are whole characters, else the bytes themselves. */
function pieceOf(bytes: Uint8Array): string | number[] {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return [...bytes];
  }
}

function read<Schema extends z.ZodType>(schema: Schema, body: RequestBody): z.output<Schema> {
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw apiErrorOfZod(parsed.error);
  return parsed.data;
}
