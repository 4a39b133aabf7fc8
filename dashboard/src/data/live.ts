import { computed, signal } from '@preact/signals';
import { urlOf } from '../router.ts';
import { get, me } from './api.ts';
import type { Live } from './types.ts';

/** The last snapshot of the live picture. */
export const live = signal<Live | undefined>(undefined);
/** Rises with each snapshot. Then all shown resources are requested again. */
export const tick = signal(0);
export const isPaused = signal(false);
type Connection = 'connecting' | 'live' | 'polling' | 'lost';
export const connection = signal<Connection>('connecting');

/** How many snapshots the sparklines show: those of the last minutes that this tab received. */
const KEPT = 60;
const seen = signal<readonly Live[]>([]);
export const recent = computed(() => seen.value);

const POLL_MS = 5000;
const RETRY_MS = 30_000;
/** Some proxies hold back streams. If no snapshot arrives within this time, the page polls instead. */
const SILENT_MS = 8000;

/** What the tab that reads tells the others: how it reads, and what it has read. */
interface Broadcast {
  readonly connection: Connection;
  readonly lastId: string;
  readonly snapshot: Live | undefined;
}

/** Of the tabs that show this dashboard: another one of the same host, below another path, has a channel and a lock of its own. */
const SHARED = `pawl-live ${urlOf('')}`;
const channel =
  navigator.locks !== undefined && 'BroadcastChannel' in globalThis ? new BroadcastChannel(SHARED) : undefined;
let source: EventSource | undefined;
let poller: number | undefined;
let lastId = '';

/**
 * One stream serves all tabs of this browser, because a browser opens only six connections to one server. The tab that holds the
 * browser's lock reads the stream, or polls, and tells the others. Over plain http there are no such locks, so each tab reads its own.
 */
export function startLive(): void {
  channel?.addEventListener('message', ({ data }: MessageEvent<Broadcast>) => {
    lastId = data.lastId;
    show(data);
  });
  if (channel !== undefined) {
    connection.value = 'live';
    void get<Live>('live').then(take, () => {});
    void navigator.locks.request(SHARED, () => new Promise(() => open()));
  } else {
    open();
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !isPaused.value) void get<Live>('live').then(take, () => {});
  });
}

export function togglePause(): void {
  isPaused.value = !isPaused.value;
  if (!isPaused.value) void get<Live>('live').then(take, () => {});
}

/** Requests all shown resources again, after a change by this page. */
export function refresh(): void {
  tick.value += 1;
}

function open(): void {
  const url = new URL(urlOf('api/v1/events'));
  if (lastId !== '') url.searchParams.set('lastEventId', lastId);
  source = new EventSource(url);
  const silent = setTimeout(poll, SILENT_MS);
  source.addEventListener('snapshot', (event) => {
    clearTimeout(silent);
    clearInterval(poller);
    lastId = event.lastEventId;
    tell('live', JSON.parse(event.data) as Live);
  });
  source.addEventListener('trouble', () => tell('lost'));
  source.addEventListener('error', () => {
    tell('lost');
    if (source?.readyState !== EventSource.CLOSED) return; // the browser comes back by itself
    // Refused. Either there are too many streams, and polls do as well; or the login is over, and a poll finds that out.
    poll();
    setTimeout(open, RETRY_MS);
  });
}

function poll(): void {
  clearInterval(poller);
  const ask = (): void => {
    if (me.value === null) return;
    get<Live>('live').then(
      (snapshot) => tell('polling', snapshot),
      () => tell('lost'),
    );
  };
  ask();
  poller = setInterval(ask, POLL_MS);
}

/** Shows it in this tab and in the others. */
function tell(how: Connection, snapshot?: Live): void {
  const message: Broadcast = { connection: how, lastId, snapshot };
  show(message);
  channel?.postMessage(message);
}

function show(message: Broadcast): void {
  connection.value = message.connection;
  if (message.snapshot !== undefined) take(message.snapshot);
}

function take(snapshot: Live): void {
  if (isPaused.value || document.hidden) return;
  live.value = snapshot;
  seen.value = [...seen.value, snapshot].slice(-KEPT);
  tick.value += 1;
}
