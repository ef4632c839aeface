import { ROUTE_HEADER } from "../../../shared/protocol/headers.ts";
import type { ReplicaTarget } from "../../ports/coordinator.ts";
import type { InferenceRequest } from "../inference-request.ts";
import { headerText } from "../outgoing/header-text.ts";
import { upstreamRequest } from "../outgoing/upstream-request.ts";
import type { ClientAnswer } from "../relay/client-answer.ts";
import { Relay } from "../relay/relay.ts";
import type { RelayResult } from "../relay/relay-result.ts";
import type { DispatcherDeps } from "../settings.ts";

export interface SentAttemptOptions {
  readonly deps: DispatcherDeps;
  readonly request: InferenceRequest;
  readonly answer: ClientAnswer;
  readonly target: ReplicaTarget;
  readonly attempt: number;
  /** Before anything is sent: from here on the request has a row. Throws when the ledger takes none. */
  readonly open: () => void;
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
    const { deps, request, answer, target, attempt, open } = this.#options;
    const { clock, ledger, settings, upstream } = deps;
    const { requestId, envelope } = request;
    const outgoing = await upstreamRequest(deps, request, target, attempt);
    open();
    const { backend, replicaId: replica, epoch } = target;
    ledger.attemptStarted({ requestId, attempt, backend, replica, epoch });
    answer.setHeaders({ [ROUTE_HEADER]: `${headerText(target.key)};attempts=${attempt}` });
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
}
