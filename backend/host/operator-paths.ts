import { ENGINE_SAES_PATH, ENGINE_TEXT_PATHS } from "../ports/engine-events.ts";
import { ENGINE_WATCH_LISTS_PATH } from "../ports/watch-lists.ts";

/** What an operator's path asks of a model's engine. */
export interface OperatorPlace {
  /** Null where the body names the model. */
  readonly model: string | null;
  readonly methods: readonly string[];
  readonly enginePath: string;
  readonly kind: "saes" | "text" | "watch_lists";
  /** Of the SAE or the watch list, where the path names one. */
  readonly id: string | null;
}

const OF_MODEL = /^\/host\/v1\/models\/([^/]+)(\/.+)$/;
const SAES = /^\/saes(?:\/([^/]+))?$/;
const WATCH_LISTS = /^\/watch-lists(\/([^/]+)(\/events)?)?$/;

/** The place of a path without its query; null when it is none of the operator's. */
export function readOperatorPath(path: string): OperatorPlace | null {
  const text = textPlace(path, null);
  if (text !== null) return text;
  const [, segment, rest] = OF_MODEL.exec(path) ?? [];
  if (segment === undefined || rest === undefined) return null;
  const model = decoded(segment);
  return textPlace(rest, model) ?? saePlace(rest, model) ?? watchPlace(rest, model);
}

function textPlace(path: string, model: string | null): OperatorPlace | null {
  const enginePath = ENGINE_TEXT_PATHS.find((known) => known === path);
  return enginePath === undefined ? null : { kind: "text", model, methods: ["POST"], enginePath, id: null };
}

function saePlace(path: string, model: string): OperatorPlace | null {
  const match = SAES.exec(path);
  if (match === null) return null;
  const [, id] = match;
  if (id === undefined) return { kind: "saes", model, methods: ["POST"], enginePath: ENGINE_SAES_PATH, id: null };
  return { kind: "saes", model, methods: ["DELETE"], enginePath: `${ENGINE_SAES_PATH}/${id}`, id: decoded(id) };
}

function watchPlace(path: string, model: string): OperatorPlace | null {
  const match = WATCH_LISTS.exec(path);
  if (match === null) return null;
  const [, rest = "", id, events] = match;
  const methods = id === undefined || events !== undefined ? ["GET"] : ["GET", "PUT", "DELETE"];
  const enginePath = `${ENGINE_WATCH_LISTS_PATH}${rest}`;
  return { kind: "watch_lists", model, methods, enginePath, id: id === undefined ? null : decoded(id) };
}

/** What cannot be decoded names nothing that there is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
