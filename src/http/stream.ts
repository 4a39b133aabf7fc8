/** Proxies close what is silent for long, and browsers do not notice. */
const HEARTBEAT_MS = 15_000;
/** Whoever reads so slowly is let go, and comes back with the id of what he saw last. */
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
 * @param lastId  what the caller saw last @param send  tells him @param end  nothing more will come
 * @returns stops looking; called once, when he is gone
 */
export type Watch = (lastId: string | undefined, send: (event: StreamEvent) => void, end: () => void) => () => void;

/** Server-sent events. */
export function eventStream(request: Request, watch: Watch): Response {
  const encoder = new TextEncoder();
  let end = (): void => {};
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const send = (text: string): void => {
          if ((controller.desiredSize ?? 0) < -MOST_WAITING) return end();
          controller.enqueue(encoder.encode(text));
        };
        const heart = setInterval(() => send(': alive\n\n'), HEARTBEAT_MS);
        let stopWatching = (): void => {};
        let isOver = false;
        end = () => {
          if (isOver) return;
          isOver = true;
          clearInterval(heart);
          stopWatching();
          controller.close();
        };
        // How long to wait before coming back; and something to read at once, so that proxies begin to pass it on.
        send('retry: 2000\n\n');
        const tell = ({ id, event, data }: StreamEvent): void => {
          if (!isOver) send(`${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${data}\n\n`);
        };
        const stop = watch(lastIdOf(request), tell, () => end());
        stopWatching = stop;
        if (isOver) stop();
        request.signal.addEventListener('abort', () => end(), { once: true });
        if (request.signal.aborted) end();
      },
      cancel: () => end(),
    },
    { highWaterMark: 16 },
  );
  return new Response(body, {
    headers: {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      'x-accel-buffering': 'no',
    },
  });
}

/** What a stream that broke off had told last. */
export function lastIdOf(request: Request): string | undefined {
  return request.headers.get('last-event-id') ?? new URL(request.url).searchParams.get('lastEventId') ?? undefined;
}
