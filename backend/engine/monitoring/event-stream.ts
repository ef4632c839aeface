import type { Clock } from "../../../shared/time/clock.ts";
import { sseComment, sseData } from "../../../shared/sse/writer.ts";
import type { EventHistory, KeptEvent } from "./event-history.ts";

/** What a stream is written to; a ServerResponse is one. */
export interface StreamWriter {
  /** Bytes that were written and not yet taken by the reader's connection. */
  readonly writableLength: number;
  write(text: string): unknown;
  end(): unknown;
  destroy(): unknown;
}

/** Keeps proxies and readers from taking a quiet stream for a dead one. */
const HEARTBEAT_MS = 15_000;
/** A reader that leaves this much unread is dropped: it comes back with `Last-Event-ID` and misses nothing that is kept. */
const MOST_UNREAD_BYTES = 1_048_576;

export interface FollowOptions {
  readonly history: EventHistory;
  /** Tells the sequences of one life of the list from those of another. */
  readonly epoch: number;
  /** The reader knows the events up to this one. */
  readonly afterSequence: number;
  readonly writer: StreamWriter;
  readonly clock: Pick<Clock, "after">;
}

const nothing = (): void => undefined;

/** Writes the kept events and then those that come as server-sent events. Returns how to stop when the reader has left. */
export function streamEvents({ history, epoch, afterSequence, writer, clock }: FollowOptions): () => void {
  let stopped = false;
  let cancelBeat = nothing;
  let leave = nothing;
  const stop = (): void => {
    stopped = true;
    cancelBeat();
    leave();
  };
  const write = (text: string): void => {
    if (stopped) return;
    writer.write(text);
    if (writer.writableLength <= MOST_UNREAD_BYTES) return;
    stop();
    writer.destroy();
  };
  const beat = (): void => {
    write(sseComment("heartbeat"));
    if (!stopped) cancelBeat = clock.after(HEARTBEAT_MS, beat);
  };
  beat();
  const left = history.follow(afterSequence, {
    event: (event) => write(frameOf(event, epoch)),
    ended: () => {
      if (stopped) return;
      stop();
      writer.end();
    },
  });
  // It may be over before there was anything to leave.
  if (stopped) left();
  leave = left;
  return stop;
}

/** Its id is what readers send back as `Last-Event-ID`. */
const frameOf = (event: KeptEvent, epoch: number): string =>
  `id: ${epoch}.${event.sequence}\nevent: threshold\n${sseData(JSON.stringify(event))}`;

/** The sequence after which a reader that comes back goes on: from the first where its id is of another life. */
export function sequenceAfter(lastEventId: string | undefined, epoch: number): number {
  const [, life, sequence] = /^(\d{1,15})\.(\d{1,15})$/.exec(lastEventId ?? "") ?? [];
  return Number(life) === epoch ? Number(sequence) : 0;
}
