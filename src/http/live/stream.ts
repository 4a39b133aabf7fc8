import type { Streams, Watcher } from './streams.ts';

/** Proxies close what is silent for long, and browsers do not notice. */
const HEARTBEAT_MS = 15_000;
/** A client that reads so slowly is disconnected, and comes back with the id of the last event that it saw. */
const MOST_WAITING = 64;

/** One event of a stream. */
export interface StreamEvent {
  /** With which the browser says where it was. */
  readonly id?: string;
  readonly event: string;
  readonly data: string;
}

/**
 * Begins to look. It is called once for each stream.
 * @param lastId  the last event that the caller saw @param send  sends one @param end  nothing more will come
 * @returns stops; called once, when the caller is gone
 */
export type StreamWatch = (
  lastId: string | undefined,
  send: (event: StreamEvent) => void,
  end: () => void,
) => () => void;

const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store, no-transform',
  'x-accel-buffering': 'no',
} as const;

/**
 * Server-sent events. For HEAD nothing is begun, since nothing would ever end it.
 * @throws HttpRefusal  too many are open
 */
export function eventStream(streams: Streams, watcher: Watcher, request: Request, watch: StreamWatch): Response {
  if (request.method === 'HEAD') return new Response(null, { headers: HEADERS });
  let end = (): void => {};
  const forget = streams.add(watcher, () => end());
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const write = (text: string): void => {
          if (isOver) return;
          if ((controller.desiredSize ?? 0) < -MOST_WAITING) return end();
          controller.enqueue(encoder.encode(text));
        };
        const heart = setInterval(() => write(': alive\n\n'), HEARTBEAT_MS);
        let stopWatching = (): void => {};
        let isOver = false;
        end = () => {
          if (isOver) return;
          isOver = true;
          clearInterval(heart);
          forget();
          stopWatching();
          controller.close();
        };
        // How long to wait before coming back; and something to read at once, so that proxies begin to pass it on.
        write('retry: 2000\n\n');
        const stop = watch(lastIdOf(request), (event) => write(written(event)), end);
        stopWatching = stop;
        if (isOver) stop();
        request.signal.addEventListener('abort', () => end(), { once: true });
        if (request.signal.aborted) end();
      },
      cancel: () => end(),
    },
    { highWaterMark: 16 },
  );
  return new Response(body, { headers: HEADERS });
}

function written({ id, event, data }: StreamEvent): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${data}\n\n`;
}

/** What a stream that broke off had told last. */
export function lastIdOf(request: Request): string | undefined {
  return request.headers.get('last-event-id') ?? new URL(request.url).searchParams.get('lastEventId') ?? undefined;
}
