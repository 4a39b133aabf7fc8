import { createHash } from 'node:crypto';
import { InvalidInput } from '../../base/errors.ts';
import { type Fields, maybe, readFields, text } from '../protocol/field.ts';
import { readQuery } from '../protocol/parameters.ts';
import type { Services } from '../services.ts';
import type { HistoryEvent } from '../store/history.ts';
import { timeOf } from './feed.ts';
import { isSettled, type JobWatch } from './job-watch.ts';
import { lastIdOf, type StreamWatch } from './stream.ts';

/** The parts of the whole history, except the audit, which needs a permission. */
const PARTS = ['job', 'lock', 'actor', 'page'] as const;

const FILTERS = {
  part: maybe(text({ max: 100 })),
  of: maybe(text({ max: 255 })),
  event: maybe(text({ max: 100 })),
  lastEventId: maybe(text()),
} satisfies Fields;

/**
 * The events of a stream: the live picture; or, if the request names parts, a subject or an event, the events of these.
 * @throws InvalidInput
 */
export function watchOf({ live, feeds }: Services, request: Request): StreamWatch {
  const { part, of: subject, event } = readFields('GET /events', readQuery(new URL(request.url)), FILTERS, true);
  if (part === undefined && subject === undefined && event === undefined)
    return (lastId, send) => live.watch(lastId, send);
  const parts = partsOf(part);
  const lastId = lastIdOf(request);
  if (lastId !== undefined) timeOf(lastId);
  const [only] = parts.length === 1 ? parts : [];
  const isWanted = (one: HistoryEvent): boolean =>
    parts.some((wanted) => wanted === one.part) && (event === undefined || one.event === event);
  return (id, send, end) => feeds.watch({ part: only, subject }, isWanted, id, send, end);
}

function partsOf(given: string | undefined): readonly (typeof PARTS)[number][] {
  if (given === undefined) return PARTS;
  const parts = given.split(',');
  const known = PARTS.filter((part) => parts.includes(part));
  if (known.length === parts.length) return known;
  throw new InvalidInput(`part must be some of ${PARTS.join(', ')}, with commas between them`, { field: 'part' });
}

/**
 * Sends each step of a job, and ends when the job is settled. A client that returns with the id of a step does not get that step
 * again.
 */
export function watchJob(jobs: JobWatch, id: string): StreamWatch {
  return (lastId, send, end) => {
    let shown = '';
    return jobs.watch(id, (standing) => {
      if (standing === undefined) return end();
      const data = JSON.stringify(standing);
      if (data !== shown) {
        const step = createHash('sha256').update(data).digest('base64url').slice(0, 16);
        if (shown !== '' || step !== lastId) send({ id: step, event: 'job', data });
      }
      shown = data;
      if (isSettled(standing)) end();
    });
  };
}
