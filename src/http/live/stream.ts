import type { Streams, Watcher } from './streams.ts';

/** Proxies close a connection that is silent for long, and browsers do not notice. */
const HEARTBEAT_MS = 15_000;
/**
 * A client that leaves so many bytes unread is disconnected, and returns with the id of the last event that it saw. It is more than
 * the 5,000 events of one poll: these are written at once, before the fastest client can read the first of them.
 */
const MOST_WAITING = 8 * 1024 * 1024;

/** One event of a stream. */
export interface StreamEvent {
  /** The id by which the browser continues after a break. */
  readonly id?: string;
  readonly event: string;
  readonly data: string;
}

/**
 * Begins to watch; called once for each stream.
 * @param lastId  the last event that the caller saw @param send  sends one event @param end  called when no more events will come
 * @returns a function that stops it; called once, when the caller is gone
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
 * Server-sent events. For HEAD no stream is begun, because nothing would end it.
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
        // The pause before a client returns; and data at once, so that proxies begin to pass the stream on.
        write('retry: 2000\n\n');
        const stop = watch(lastIdOf(request), (event) => write(written(event)), end);
        stopWatching = stop;
        if (isOver) stop();
        request.signal.addEventListener('abort', () => end(), { once: true });
        if (request.signal.aborted) end();
      },
      cancel: () => end(),
    },
    { highWaterMark: 16_384, size: ({ byteLength }) => byteLength },
  );
  return new Response(body, { headers: HEADERS });
}

function written({ id, event, data }: StreamEvent): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${data}\n\n`;
}

/** The id of the last event before a stream broke off. */
export function lastIdOf(request: Request): string | undefined {
  return request.headers.get('last-event-id') ?? new URL(request.url).searchParams.get('lastEventId') ?? undefined;
}
