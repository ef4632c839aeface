import { ROUTE_HEADER } from "../../../shared/protocol/headers.ts";
import type { ReplicaTarget } from "../../ports/coordinator.ts";
import { headerText } from "../outgoing/header-text.ts";
import { upstreamRequest } from "../outgoing/upstream-request.ts";
import type { AnswerSink } from "../relay/answer-sink.ts";
import { Relay } from "../relay/relay.ts";
import type { RelayResult } from "../relay/relay-result.ts";
import type { ChainLink } from "./model-chain.ts";
import type { RunContext } from "./run-context.ts";

export interface SentAttemptOptions {
  readonly context: RunContext;
  readonly link: ChainLink;
  readonly answer: AnswerSink;
  readonly target: ReplicaTarget;
  readonly attempt: number;
}

/** One attempt on its way: signed, journaled, sent and relayed. Can be stopped from the first moment on. */
export class SentAttempt {
  readonly #options: SentAttemptOptions;
  #relay: Relay | null = null;
  #stopped: "cancelled" | "expired" | null = null;

  constructor(options: SentAttemptOptions) {
    this.#options = options;
  }

  /** Once. Rejects when the request cannot be signed or the ledger takes none; nothing was sent then. */
  async run(): Promise<RelayResult> {
    const { context, link, answer, target, attempt } = this.#options;
    const { deps } = context;
    const asked = context.request;
    const request = link.model === asked.model ? asked : { ...asked, model: link.model };
    const { clock, settings, upstream } = deps;
    const { envelope } = request;
    const outgoing = await upstreamRequest(deps, { request, price: link.priced.price }, target, attempt);
    this.#journal();
    answer.setHeaders({ [ROUTE_HEADER]: this.#route() });
    const relay = new Relay({
      clock,
      answer,
      target,
      isStream: envelope.stream === true,
      clientWantsUsage: envelope.stream_options?.include_usage === true,
      timeouts: settings.timeouts,
    });
    this.#relay = relay;
    const running = relay.run(upstream, outgoing);
    // Both may have come while the request was signed.
    if (this.#stopped === "cancelled") relay.cancel();
    else if (this.#stopped === "expired") relay.expire("total_timeout");
    return running;
  }

  /** Nobody wants the answer any more. The connection is closed before this returns. */
  cancel(): void {
    this.#stopped = "cancelled";
    this.#relay?.cancel();
  }

  /** The time of the whole request is up. */
  expire(): void {
    this.#stopped ??= "expired";
    this.#relay?.expire("total_timeout");
  }

  #journal(): void {
    const { context, link, target, attempt } = this.#options;
    const opened = context.open(link);
    const { backend, replicaId: replica, epoch } = target;
    const { requestId } = context.request;
    const started = { requestId, attempt, backend, replica, epoch };
    const isOther = opened.model.id !== link.model.id;
    context.deps.ledger.attemptStarted(
      isOther ? { ...started, served: { model: link.model.id, ...link.priced } } : started,
    );
  }

  /** Such as `gpu-1/r0;attempts=2`, with the model where it is not the one that was asked for. */
  #route(): string {
    const { context, link, target, attempt } = this.#options;
    const model = link.model.id === context.request.model.id ? "" : `;model=${headerText(link.model.id)}`;
    return `${headerText(target.key)};attempts=${attempt}${model}`;
  }
}
