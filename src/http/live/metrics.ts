import type { LiveSnapshot } from '../store/live.ts';

const BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5] as const;

interface Timing {
  readonly counts: number[];
  sum: number;
  total: number;
}

/** What Prometheus reads. A label has one of few values, which a program declared: routes, queues, types; never ids or names of locks. */
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
    const lines: string[] = [];
    const family = (name: string, type: 'gauge' | 'counter', help: string, rows: readonly Sample[]): void => {
      if (rows.length === 0) return;
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      for (const [of, value] of rows) lines.push(`${name}${of} ${value}`);
    };
    const { queues, actors, locks, pages } = snapshot;
    const perQueue = (field: string, scale = 1): Sample[] =>
      queues.flatMap(({ name, stats }) => {
        const value = stats[field];
        return typeof value === 'number' ? [[labels({ queue: name }), value * scale] as const] : [];
      });
    family(
      'pawl_queue_jobs',
      'gauge',
      'Jobs by the place they are in; 10000 means that many or more.',
      queues.flatMap(({ name, stats }) =>
        ['ready', 'delayed', 'parked', 'inProgress', 'error', 'cancelled'].map(
          (place): Sample => [labels({ queue: name, place: snake(place) }), Number(stats[place] ?? 0)],
        ),
      ),
    );
    family(
      'pawl_queue_completed_per_minute',
      'gauge',
      'Jobs completed within the last minute.',
      perQueue('completePerMinute'),
    );
    family(
      'pawl_queue_oldest_ready_seconds',
      'gauge',
      'How long the oldest ready job has waited.',
      perQueue('oldestReadyMs', 0.001),
    );
    family('pawl_queue_workers', 'gauge', 'Live workers.', perQueue('workers'));
    family('pawl_queue_slots', 'gauge', 'Jobs that the live workers can run at once.', perQueue('slots'));
    family(
      'pawl_queue_paused',
      'gauge',
      '1 when the queue is paused.',
      queues.map(({ name, stats }) => [labels({ queue: name }), stats['pausedAt'] === null ? 0 : 1]),
    );
    family('pawl_locks', 'gauge', 'Locks held and waited for.', [
      [labels({ state: 'held' }), locks.held],
      [labels({ state: 'waiting' }), locks.waiting],
    ]);
    family(
      'pawl_actors',
      'gauge',
      'Actors by state; 1000 means that many or more.',
      actors.flatMap(({ type, states }) =>
        Object.entries(states).map(([state, n]): Sample => [labels({ type, state }), n]),
      ),
    );
    family(
      'pawl_actor_workers',
      'gauge',
      'Live workers of a type of actors.',
      actors.map(({ type, workers }) => [labels({ type }), workers]),
    );
    family('pawl_pages', 'gauge', 'Pages that are not resolved.', [
      [labels({ status: 'open' }), pages.open],
      [labels({ status: 'acked' }), pages.acked],
    ]);
    family('pawl_database_oldest_transaction_seconds', 'gauge', 'Age of the oldest open transaction.', [
      ['', (snapshot.oldestTransactionMs ?? 0) / 1000],
    ]);
    family('pawl_database_connections', 'gauge', 'Connections to the server.', [['', snapshot.connections]]);
    family('pawl_http_watchers', 'gauge', 'Open streams of live updates in this process.', [['', watchers]]);
    family('pawl_http_requests_total', 'counter', 'Requests to this process.', [...this.#requests]);
    return `${[...lines, ...this.#histogram()].join('\n')}\n`;
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
