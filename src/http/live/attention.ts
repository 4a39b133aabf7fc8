import { formatDuration } from '../../base/time/duration.ts';
import { readQueueHealth, searchFilter } from '../../queue/index.ts';
import type { Services } from '../services.ts';
import type { LiveSnapshot } from '../store/live.ts';
import { isUnattended } from './picture.ts';

const OLD_TRANSACTION_MS = 10 * 60_000;
/** For each problem, this many subjects are named, and one line counts the others. A list is better for 400 of them. */
const NAMED = 10;

export interface Item {
  readonly level: 'warning' | 'error';
  readonly text: string;
  readonly advice?: string;
  /** The page of the dashboard, with its filters. */
  readonly look: string;
}

/** The problems that need a person now, the worst first: of all queues and types of actors. */
export async function needsAttention({ bounded, actors, live, table }: Services): Promise<Item[]> {
  if (table !== undefined) {
    const snapshot = await live.snapshot();
    return [...ofPages(snapshot), ...ofQueues(snapshot)];
  }
  const [health, ofActors, snapshot] = await Promise.all([
    readQueueHealth(bounded),
    actors.reads.health(),
    live.snapshot(),
  ]);
  const items = [
    ...ofPages(snapshot),
    ...ofErrors(snapshot),
    ...ofServer(snapshot),
    ...ofHealth(health),
    ...ofQueues(snapshot),
    ...named(
      ofActors.unattended,
      (name): Item => ({
        level: 'error',
        text: `actors of type "${name}" are due, but no worker runs them`,
        advice: 'start one',
        look: `actors?type=${encodeURIComponent(name)}`,
      }),
      (more) => ({ level: 'error', text: `actors of ${more} more types are due without a worker`, look: 'actors' }),
    ),
    ...named(
      ofActors.held,
      ({ actor, reason }): Item => ({
        level: 'warning',
        text: `actor ${actor} is held: ${reason}`,
        look: `actors/${actor}`,
      }),
      (more) => ({ level: 'warning', text: `${more} more actors are held`, look: 'actors' }),
    ),
    ...named(
      ofActors.lostWorkers,
      (process): Item => ({ level: 'warning', text: `worker ${process} of actors is lost`, look: 'workers' }),
      (more) => ({ level: 'warning', text: `${more} more workers of actors are lost`, look: 'workers' }),
    ),
  ];
  return items.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning'));
}

function named<T>(all: readonly T[], item: (one: T) => Item, rest: (more: number) => Item): Item[] {
  const items = all.slice(0, NAMED).map(item);
  return all.length > NAMED ? [...items, rest(all.length - NAMED)] : items;
}

function queuePage(name: string): string {
  return `queues/${encodeURIComponent(name)}`;
}

function ofPages({ pages }: LiveSnapshot): Item[] {
  if (pages.open === 0) return [];
  const level = pages.worst === 'critical' || pages.worst === 'error' ? 'error' : 'warning';
  return [{ level, text: `${pages.open} ${pages.open === 1 ? 'page is' : 'pages are'} open`, look: 'pages' }];
}

/** The queues with the most errors first. */
function ofErrors({ queues }: LiveSnapshot): Item[] {
  const failing = queues
    .map(({ name, stats }) => ({ name, errors: Number(stats['error']) }))
    .filter(({ errors }) => errors > 0)
    .sort((a, b) => b.errors - a.errors);
  return named(
    failing,
    ({ name, errors }): Item => ({
      level: 'warning',
      text: `${errors >= 10_000 ? '10,000 or more' : errors} jobs of queue "${name}" ended in error`,
      look: `jobs?queue=${encodeURIComponent(name)}&q=status%3Aerror`,
    }),
    (more) => ({ level: 'warning', text: `jobs of ${more} more queues ended in error`, look: 'queues?sort=error' }),
  );
}

function ofQueues({ queues }: LiveSnapshot): Item[] {
  const unattended = queues.filter(({ stats }) => isUnattended(stats));
  const paused = queues.filter(({ stats }) => stats['pausedAt'] !== null);
  return [
    ...named(
      unattended,
      ({ name }): Item => ({
        level: 'error',
        text: `jobs of queue "${name}" wait, but it has no running worker`,
        advice: 'start one',
        look: queuePage(name),
      }),
      (more) => ({
        level: 'error',
        text: `jobs of ${more} more queues wait without a worker`,
        look: 'queues?sort=oldestReadyMs',
      }),
    ),
    ...named(
      paused,
      ({ name }): Item => ({ level: 'warning', text: `queue "${name}" is paused`, look: queuePage(name) }),
      (more) => ({ level: 'warning', text: `${more} more queues are paused`, look: 'queues' }),
    ),
  ];
}

function ofHealth({ lostWorkers, strandedKeys, blockedKeys }: Awaited<ReturnType<typeof readQueueHealth>>): Item[] {
  return [
    ...named(
      lostWorkers,
      ({ process, queue, jobs }): Item => ({
        level: jobs > 0 ? 'error' : 'warning',
        text: `worker ${process} of queue "${queue}" is lost${jobs > 0 ? `, with ${jobs} jobs in progress` : ''}`,
        look: 'workers',
      }),
      (more) => ({ level: 'warning', text: `${more} more workers are lost`, look: 'workers' }),
    ),
    ...named(
      blockedKeys,
      ({ queue, key, job }): Item => ({
        level: 'error',
        text: `key "${key}" of queue "${queue}" is blocked by job ${job}, which ended in error`,
        advice: 'retry or skip that job',
        look: `jobs/${job}`,
      }),
      (more) => ({ level: 'error', text: `${more} more keys are blocked by jobs that ended in error`, look: 'queues' }),
    ),
    ...named(
      strandedKeys,
      ({ queue, key }): Item => ({
        level: 'error',
        text: `key "${key}" of queue "${queue}" counts as busy, but no process holds it`,
        advice: 'this is a fault in Pawl: please report it',
        look: `jobs?q=${encodeURIComponent(searchFilter('key', key))}`,
      }),
      (more) => ({
        level: 'error',
        text: `${more} more keys count as busy, but no process holds them`,
        look: 'queues',
      }),
    ),
  ];
}

function ofServer({ oldestTransactionMs, connections, maxConnections, wraparound }: LiveSnapshot): Item[] {
  const items: Item[] = [];
  if ((oldestTransactionMs ?? 0) > OLD_TRANSACTION_MS) {
    const age = formatDuration(Math.round((oldestTransactionMs ?? 0) / 60_000) * 60_000);
    items.push({
      level: 'warning',
      text: `a transaction has been open for ${age}, so dead rows cannot be removed`,
      look: 'admin',
    });
  }
  if (connections > maxConnections * 0.9) {
    items.push({ level: 'error', text: `${connections} of ${maxConnections} connections are in use`, look: 'admin' });
  }
  if (wraparound > 1_500_000_000) {
    items.push({
      level: 'error',
      text: 'the database is close to the end of its transaction ids',
      advice: 'vacuum it',
      look: 'admin',
    });
  }
  return items;
}
