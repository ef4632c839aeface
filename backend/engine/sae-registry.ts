import type { GenerationPlan } from "./openai/generation-plan.ts";
import type { LoadedSae } from "./engine-model.ts";

/**
 * The SAEs that are attached now. Requests hold what they use, so one that was detached or swapped lives on in native
 * memory until the last request that began with it is done.
 */
export class SaeRegistry {
  #attached: readonly LoadedSae[];
  readonly #holders = new Map<LoadedSae, number>();
  #closed = false;

  constructor(attached: readonly LoadedSae[]) {
    this.#attached = attached;
  }

  get attached(): readonly LoadedSae[] {
    return this.#attached;
  }

  /** Takes the place of an SAE of the same id. */
  attach(sae: LoadedSae): void {
    const place = this.#attached.findIndex(({ id }) => id === sae.id);
    const replaced = this.#attached[place];
    this.#attached = place < 0 ? [...this.#attached, sae] : this.#attached.with(place, sae);
    if (replaced !== undefined) this.#disposeUnused(replaced);
    // Loaded while the engine went down: nobody else gives it back.
    if (this.#closed) this.close();
  }

  /** False when no SAE has this id. */
  detach(id: string): boolean {
    const found = this.#attached.find((sae) => sae.id === id);
    if (found === undefined) return false;
    this.#attached = this.#attached.filter((sae) => sae !== found);
    this.#disposeUnused(found);
    return true;
  }

  /** Keeps these alive until the returned function is called, once. */
  hold(saes: Iterable<LoadedSae>): () => void {
    const held = new Set(saes);
    for (const sae of held) this.#holders.set(sae, (this.#holders.get(sae) ?? 0) + 1);
    return () => {
      for (const sae of held) {
        const left = (this.#holders.get(sae) ?? 0) - 1;
        if (left > 0) this.#holders.set(sae, left);
        else this.#holders.delete(sae);
        this.#disposeUnused(sae);
      }
      held.clear();
    };
  }

  /** Detaches all. */
  close(): void {
    this.#closed = true;
    for (const { id } of this.#attached) this.detach(id);
  }

  #disposeUnused(sae: LoadedSae): void {
    if (this.#holders.has(sae) || this.#attached.includes(sae)) return;
    sae.native.dispose();
  }
}

/** The SAEs whose encoders a request needs while it runs. */
export function saesOf({ prompts, sensing }: Pick<GenerationPlan, "prompts" | "sensing">): LoadedSae[] {
  const edits = prompts.flatMap(({ steering }) => steering.edits);
  return [
    ...edits.flatMap(({ terms, condition }) => [terms?.sae, condition?.sae].filter((sae) => sae !== undefined)),
    ...(sensing?.plans.map(({ sae }) => sae) ?? []),
  ];
}
