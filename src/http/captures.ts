import type { Change } from '../capture/index.ts';
import { id, integer, maybe, text } from './field.ts';
import type { Principal } from './permission.ts';
import type { Redaction } from './redact.ts';
import { AFTER, type AnyRoute, route } from './route.ts';

const entity = { entity: text({ max: 100, about: 'the entity of a capture' }) };
/** Whatever has been open for longer keeps consumers, and vacuum, behind. */
const OLD_MS = 10_000;

/** Changes of the user's own tables: who consumes them, how far behind, and what keeps them. */
export const captureRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/captures',
    id: 'listCaptures',
    tag: 'captures',
    summary:
      'The captures that are installed, how far each consumer is behind, and transactions that keep them behind.',
    permission: 'view',
    answers: 'CaptureList',
    sharedMs: 2000,
    run: async ({ services: { captures } }) => {
      const [records, status, culprits] = await Promise.all([
        captures.list(),
        captures.status(),
        captures.culprits(OLD_MS),
      ]);
      const items = records.map((record) => ({
        ...record,
        consumers: status.filter((one) => one.entity === record.entity),
      }));
      return { items, culprits };
    },
  }),
  route({
    method: 'GET',
    path: '/captures/{entity}',
    id: 'getCapture',
    tag: 'captures',
    summary: 'One capture: its consumers, and what of its triggers is not as it was installed.',
    permission: 'view',
    params: entity,
    answers: 'CaptureDetail',
    sharedMs: 2000,
    run: async ({ params, services: { captures } }) => {
      const [records, consumers, differences] = await Promise.all([
        captures.list(),
        captures.status(params.entity),
        captures.verify(params.entity),
      ]);
      const record = records.find((one) => one.entity === params.entity);
      return {
        ...record,
        consumers,
        differences: differences.map(({ kind, object, problem }) => ({ kind, object, problem })),
      };
    },
  }),
  route({
    method: 'GET',
    path: '/captures/{entity}/changes',
    id: 'listChanges',
    tag: 'captures',
    summary: 'Changes of the tables that keep a history, newest first. What was before and after needs payload:read.',
    permission: 'view',
    params: entity,
    query: {
      key: maybe(text({ about: 'of the entity' })),
      words: maybe(text({ max: 200, about: 'text that stands in one of the values' })),
      limit: integer({ min: 1, max: 200, default: 50 }),
      after: maybe(id(AFTER)),
    },
    answers: 'ChangePage',
    run: async ({ params, query: { key, words, limit, after }, who, services: { captures, redaction } }) => {
      const rows = await captures.history(params.entity, { key, words, limit: limit + 1, before: after });
      const items = rows.slice(0, limit).map((change) => shown(change, who, redaction));
      return { items, after: rows.length > limit ? (items.at(-1)?.id ?? null) : null };
    },
  }),
];

function shown({ before, after, ...change }: Change, who: Principal, redaction: Redaction): Change {
  const show = (values: Change['before']): Change['before'] =>
    (redaction.show(values, who, { queue: 'capture', kind: change.table }) ?? null) as Change['before'];
  return { ...change, before: show(before), after: show(after) };
}
