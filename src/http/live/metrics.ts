import type { LiveSnapshot } from '../store/live.ts';

const BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5] as const;

interface Timing {
  readonly counts: number[];
  sum: number;
  total: number;
}

/**
 * The metrics for Prometheus. A label has one of few values, which a program declared: routes, queues, types; never ids or names
 * of locks.
 */
export class Metrics {
  readonly #requests = new Map<string, number>();
  readonly #timings = new Map<string, Timing>();

  count(route: string, method: string, status: number, seconds: number): void {
    const key = labels({ route, method, status: String(status) });
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
    const of = labels({ route, method });
    const timing = this.#timings.get(of) ?? { counts: BUCKETS_S.map(() => 0), sum: 0, total: 0 };
    this.#timings.set(of, timing);
    BUCKETS_S.forEach((bound, index) => {
      if (seconds <= bound) timing.counts[index] = (timing.counts[index] ?? 0) + 1;
    });
    timing.sum += seconds;
    timing.total += 1;
  }

  /** In the text format 0.0.4. Counts of jobs stop at 10,000, of actors at 1,000 a state. */
  render(snapshot: LiveSnapshot, watchers: number): string {
    const families: readonly Family[] = [
      ...queueFamilies(snapshot),
      ...stateFamilies(snapshot),
      gauge('pawl_http_watchers', 'Open streams of live updates in this process.', [['', watchers]]),
      ['pawl_http_requests_total', 'counter', 'Requests to this process.', [...this.#requests]],
    ];
    return `${[...families.flatMap(linesOf), ...this.#histogram()].join('\n')}\n`;
  }

  #histogram(): string[] {
    const name = 'pawl_http_request_duration_seconds';
    if (this.#timings.size === 0) return [];
    const lines = [`# HELP ${name} How long requests took.`, `# TYPE ${name} histogram`];
    for (const [of, { counts, sum, total }] of this.#timings) {
      const open = of.slice(0, -1);
      BUCKETS_S.forEach((bound, index) => lines.push(`${name}_bucket${open},le="${bound}"} ${counts[index]}`));
      lines.push(`${name}_bucket${open},le="+Inf"} ${total}`, `${name}_sum${of} ${sum}`, `${name}_count${of} ${total}`);
    }
    return lines;
  }
}

type Sample = readonly [labels: string, value: number];

type Family = readonly [name: string, type: 'gauge' | 'counter', help: string, samples: readonly Sample[]];

function gauge(name: string, help: string, samples: readonly Sample[]): Family {
  return [name, 'gauge', help, samples];
}

function linesOf([name, type, help, samples]: Family): string[] {
  if (samples.length === 0) return [];
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...samples.map(([of, value]) => `${name}${of} ${value}`)];
}

const PLACES = ['ready', 'delayed', 'parked', 'inProgress', 'error', 'cancelled'];

function queueFamilies({ queues }: LiveSnapshot): Family[] {
  const perQueue = (field: string, scale = 1): Sample[] =>
    queues.flatMap(({ name, stats }) => {
      const value = stats[field];
      return typeof value === 'number' ? [[labels({ queue: name }), value * scale] as const] : [];
    });
  const jobs = queues.flatMap(({ name, stats }) =>
    PLACES.map((place): Sample => [labels({ queue: name, place: snake(place) }), Number(stats[place] ?? 0)]),
  );
  const paused = queues.map(({ name, stats }): Sample => [labels({ queue: name }), stats['pausedAt'] === null ? 0 : 1]);
  const completed = perQueue('completePerMinute');
  return [
    gauge('pawl_queue_jobs', 'Jobs by the place they are in; 10000 means that many or more.', jobs),
    gauge('pawl_queue_completed_per_minute', 'Jobs completed within the last minute.', completed),
    gauge(
      'pawl_queue_oldest_ready_seconds',
      'How long the oldest ready job has waited.',
      perQueue('oldestReadyMs', 0.001),
    ),
    gauge('pawl_queue_workers', 'Live workers.', perQueue('workers')),
    gauge('pawl_queue_slots', 'Jobs that the live workers can run at once.', perQueue('slots')),
    gauge('pawl_queue_paused', '1 when the queue is paused.', paused),
  ];
}

/** Locks, actors, pages, and the database itself. */
function stateFamilies({ locks, actors, pages, oldestTransactionMs, connections }: LiveSnapshot): Family[] {
  const states = actors.flatMap(({ type, states: counts }) =>
    Object.entries(counts).map(([state, n]): Sample => [labels({ type, state }), n]),
  );
  const workers = actors.map(({ type, workers: live }): Sample => [labels({ type }), live]);
  return [
    gauge('pawl_locks', 'Locks held and waited for.', [
      [labels({ state: 'held' }), locks.held],
      [labels({ state: 'waiting' }), locks.waiting],
    ]),
    gauge('pawl_actors', 'Actors by state; 1000 means that many or more.', states),
    gauge('pawl_actor_workers', 'Live workers of a type of actors.', workers),
    gauge('pawl_pages', 'Pages that are not resolved.', [
      [labels({ status: 'open' }), pages.open],
      [labels({ status: 'acked' }), pages.acked],
    ]),
    gauge('pawl_database_oldest_transaction_seconds', 'Age of the oldest open transaction.', [
      ['', (oldestTransactionMs ?? 0) / 1000],
    ]),
    gauge('pawl_database_connections', 'Connections to the server.', [['', connections]]),
  ];
}

function labels(pairs: Readonly<Record<string, string>>): string {
  const escape = (value: string): string =>
    value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
  return `{${Object.entries(pairs)
    .map(([name, value]) => `${name}="${escape(value)}"`)
    .join(',')}}`;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
