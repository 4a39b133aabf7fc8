import { InvalidInput, NotFound } from '../../base/errors.ts';
import type { Capture, CapturedChange, Difference, LineStatus, Projection } from '../../capture/index.ts';
import { flag, id, integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { errorOf, payloadOf } from '../redaction/hidden.ts';
import { COMPARE_MS, within } from './within.ts';

const entity = { entity: text({ max: 100, about: 'the entity of a capture' }) };
/** A transaction that has been open for longer delays consumers, and vacuum. */
const OLD_MS = 10_000;

/** Changes of the user's own tables: their consumers, how far behind these are, and how long changes are kept. */
export const captureRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/captures',
    id: 'listCaptures',
    tag: 'captures',
    summary:
      'The captures that are installed, how far each consumer is behind, and transactions that keep them behind; and those that the program declares and that are not installed.',
    permission: 'view',
    answers: 'CaptureList',
    sharedMs: 2000,
    run: async ({ services }) => {
      const captures = services.captures.reads;
      const [records, status, culprits] = await Promise.all([
        captures.list(),
        captures.status(),
        captures.culprits(OLD_MS),
      ]);
      const items = records.map((record) => ({
        ...record,
        consumers: consumersOf(status.filter((one) => one.entity === record.entity)),
      }));
      const installed = new Set(records.map((record) => record.entity));
      const declared = services.program.captures.map((capture) => capture.entity);
      return { items, missing: declared.filter((name) => !installed.has(name)), culprits };
    },
  }),
  route({
    method: 'GET',
    path: '/captures/{entity}',
    id: 'getCapture',
    tag: 'captures',
    summary: 'One capture: its consumers, and how its triggers differ from the installed ones.',
    permission: 'view',
    params: entity,
    answers: 'CaptureDetail',
    sharedMs: 2000,
    run: async ({ params, services }) => {
      const captures = services.captures.reads;
      const [records, consumers, differences] = await Promise.all([
        captures.list(),
        captures.status(params.entity),
        captures.verify(params.entity),
      ]);
      const record = records.find((one) => one.entity === params.entity);
      return {
        ...record,
        consumers: consumersOf(consumers),
        differences: told(differences),
        isDeclared: services.declared(params.entity) !== undefined,
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
    answers: 'ChangeList',
    run: async ({ params, query: { key, words, limit, after }, who, services: { captures, redaction } }) => {
      if (words !== undefined) redaction.requireSearch(who);
      const rows = await captures.reads.history(params.entity, { key, words, limit: limit + 1, before: after });
      const items = rows.slice(0, limit);
      return { items: items.map(shown), after: rows.length > limit ? (items.at(-1)?.id ?? null) : null };
    },
  }),
  route({
    method: 'GET',
    path: '/captures/{entity}/plan',
    id: 'planCapture',
    tag: 'captures',
    summary:
      'What is not as it should be, and the SQL that would mend it: as the program declares it where this server was given that, else as it was installed.',
    permission: 'view',
    params: entity,
    answers: 'CapturePlan',
    run: async ({ params, services }) => {
      const declared = services.declared(params.entity);
      const plan = await (declared ?? { plan: () => services.captures.reads.plan(params.entity) }).plan();
      return {
        by: declared === undefined ? 'installed' : 'declared',
        sql: plan.sql,
        differences: told(plan.differences),
      };
    },
  }),
  route({
    method: 'GET',
    path: '/captures/{entity}/verify',
    id: 'verifyCapture',
    tag: 'captures',
    summary: 'Checks by the catalogs that no change can be missed, or names the problems. Each request checks again.',
    permission: 'view',
    params: entity,
    answers: 'CaptureVerified',
    run: async ({ params, services: { captures } }) => {
      const differences = told(await captures.reads.verify(params.entity));
      return { isWhole: differences.length === 0, differences };
    },
  }),
  route({
    method: 'POST',
    path: '/captures/{entity}/apply',
    id: 'applyCapture',
    tag: 'captures',
    summary:
      'Installs the capture as the program declares it, or mends it, in one transaction; writers of its tables wait for a moment. Needs the declaration.',
    permission: 'capture:install',
    params: entity,
    answers: 'CaptureApplied',
    target: ({ params }) => `capture ${params.entity}`,
    run: async ({ params, effects }) => ({ mended: told(await effects.declared(params.entity).apply()) }),
  }),
  route({
    method: 'POST',
    path: '/captures/{entity}/replay',
    id: 'replayCapture',
    tag: 'captures',
    summary:
      'Begins to project all entities once, while changes go on. The workers of the projection do it, and its consumer says how far it is.',
    permission: 'capture:repair',
    params: entity,
    body: { into: maybe(text({ max: 200, about: 'only this projection' })), again: flag('although one is under way') },
    status: 202,
    answers: 'CaptureReplayed',
    target: ({ params }) => `capture ${params.entity}`,
    run: async ({ params, body, services: { captures }, effects }) => {
      const begun = await effects.captures.replay(params.entity, body);
      return { begun, consumers: consumersOf(await captures.reads.status(params.entity)) };
    },
  }),
  route({
    method: 'POST',
    path: '/captures/{entity}/reconcile',
    id: 'reconcileCapture',
    tag: 'captures',
    summary:
      'Compares every entity with its row, and marks what differs as changed unless told only to look. Within a minute; larger ones are for `pawl capture reconcile`. Needs the declaration.',
    permission: 'capture:repair',
    params: entity,
    body: { into: maybe(text({ max: 200, about: 'only this projection' })), dryRun: flag('only look') },
    answers: 'CaptureReconciled',
    target: ({ params }) => `capture ${params.entity}`,
    run: async ({ params, body, services, effects }) => {
      const projections = projectionsOf(services.needDeclared(params.entity), body.into);
      const late = 'there are more entities than can be compared in a minute: use pawl capture reconcile';
      const items = await within(COMPARE_MS, late, async (signal) => {
        const found = [];
        for (const projection of projections)
          found.push({
            name: projection.name,
            ...(await effects.projection(projection).reconcile({ repair: !body.dryRun, signal })),
          });
        return found;
      });
      return { items };
    },
  }),
  route({
    method: 'POST',
    path: '/captures/{entity}/detach',
    id: 'detachCapture',
    tag: 'captures',
    summary: 'Takes out the triggers, and everything noted. Tables that projections wrote are left.',
    permission: 'capture:detach',
    params: entity,
    body: { confirm: text({ max: 100, about: 'the name of the entity once more' }) },
    answers: 'CaptureDetached',
    target: ({ params }) => `capture ${params.entity}`,
    run: async ({ params, body, effects: { captures } }) => {
      if (body.confirm !== params.entity)
        throw new InvalidInput(`confirm says "${body.confirm}", not "${params.entity}"; nothing was done`, {
          field: 'confirm',
        });
      await captures.detach(params.entity);
      return { entity: params.entity, detached: true };
    },
  }),
];

function shown({ before, after, ...change }: CapturedChange): object {
  const of = { queue: 'capture', kind: change.table };
  return { ...change, before: payloadOf(before, of, null), after: payloadOf(after, of, null) };
}

function consumersOf(consumers: readonly LineStatus[]): object[] {
  return consumers.map((one) => ({ ...one, error: errorOf(one.error, { queue: 'capture', kind: one.name }) }));
}

function told(differences: readonly Difference[]): object[] {
  return differences.map(({ kind, object, problem }) => ({ kind, object, problem }));
}

/** @throws NotFound */
function projectionsOf({ entity: of, projections }: Capture, into: string | undefined): readonly Projection[] {
  const chosen = projections.filter(({ name }) => (into ?? name) === name);
  if (chosen.length > 0) return chosen;
  throw new NotFound(
    `the capture "${of}" declares ${into === undefined ? 'no projection' : `no projection "${into}"`}`,
  );
}
