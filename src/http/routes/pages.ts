import { NotFound } from '../../base/errors.ts';
import { pageOf, readIdCursor, writeCursor } from '../protocol/cursor.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { choice, id, integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { payloadOf } from '../redaction/hidden.ts';
import { needs } from '../redaction/redaction.ts';

const page = { id: id('the id of a page') };

/** Pages: problems that a person must solve. */
export const pageRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/pages',
    id: 'listPages',
    tag: 'pages',
    summary: 'Pages, newest first; those that are not resolved unless told otherwise.',
    permission: 'view',
    query: {
      status: maybe(choice(['open', 'acked', 'resolved', 'all'])),
      severity: maybe(choice(['info', 'warning', 'error', 'critical'])),
      actor: maybe(id('only about this actor')),
      limit: integer({ min: 1, max: 200, default: 50 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'PageList',
    sharedMs: 1000,
    run: async ({ query: { limit, after, ...filter }, services: { store } }) => {
      const rows = await store.actors.pages(readIdCursor(after), filter, limit + 1);
      return pageOf(rows, limit, (row) => writeCursor(row.id));
    },
  }),
  route({
    method: 'GET',
    path: '/pages/{id}',
    id: 'getPage',
    tag: 'pages',
    summary: 'One page, with its details.',
    permission: 'view',
    params: page,
    answers: 'PageDetail',
    run: async ({ params, services: { actors } }) => {
      checkId(params.id);
      const record = await actors.reads.getPage(params.id);
      return { ...record, details: payloadOf(record.details, { queue: 'page', kind: record.tag }, null) };
    },
  }),
  route({
    method: 'GET',
    path: '/pages/{id}/html',
    id: 'getPageHtml',
    tag: 'pages',
    summary: 'Its diagnostics as one HTML file, to be kept or sent on: diagram, history, fields, errors, what to try.',
    permission: 'payload:read',
    params: page,
    givesBytes: true,
    answers: 'Json',
    run: async ({ params, who, services: { actors, redaction } }) => {
      checkId(params.id);
      needs(who, 'error:read');
      if (redaction.isNeeded)
        throw new HttpRefusal('not_supported', 'this server hides values, and a diagnostics page would show them');
      const headers = {
        'content-type': 'text/html; charset=utf-8',
        'content-disposition': `attachment; filename="page-${params.id}.html"`,
        'content-security-policy': "default-src 'none'; sandbox",
      };
      return new Response(await actors.reads.pageHtml(params.id), { headers });
    },
  }),
  route({
    method: 'POST',
    path: '/pages/{id}/ack',
    id: 'ackPage',
    tag: 'pages',
    summary: 'Acknowledges a page: says that a person works on it.',
    permission: 'page:ack',
    params: page,
    answers: 'Done',
    target: ({ params }) => `page ${params.id}`,
    run: async ({ params, who, effects: { actors } }) => {
      checkId(params.id);
      const wasOpen = await actors.ackPage(params.id, who.name);
      return { done: wasOpen ? `page ${params.id} is acknowledged` : `page ${params.id} was resolved already` };
    },
  }),
  route({
    method: 'POST',
    path: '/pages/{id}/resolve',
    id: 'resolvePage',
    tag: 'pages',
    summary: 'Resolves it by hand; it opens again when it is asked for again.',
    permission: 'page:resolve',
    params: page,
    answers: 'Done',
    target: ({ params }) => `page ${params.id}`,
    run: async ({ params, effects: { actors } }) => {
      checkId(params.id);
      const wasOpen = await actors.resolvePage({ id: params.id });
      return { done: wasOpen ? `page ${params.id} is resolved` : `page ${params.id} was resolved already` };
    },
  }),
];

/** Ids of pages fit into a number. @throws NotFound */
function checkId(value: string): void {
  if (!/^\d{1,15}$/.test(value)) throw new NotFound(`there is no page ${value}`);
}
