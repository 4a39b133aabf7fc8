import { InvalidInput } from '../../base/errors.ts';
import type { DocumentLock, Files, PastVersion, WriteResult } from '../../files/index.ts';
import { pageOf, readCursor, writeCursor } from '../protocol/cursor.ts';
import { integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { payloadOf } from '../redaction/hidden.ts';
import { readFileBytes, writeFileBytes } from './file-bytes.ts';
import { COMPARE_MS, within } from './within.ts';

const namespace = maybe(text({ min: 0, max: 255, about: 'as given to createFiles; default: outside of namespaces' }));
const id = text({ max: 512, about: 'of a document; at most 512 bytes' });
const version = integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const ifVersion = maybe(
  integer({ min: 0, max: Number.MAX_SAFE_INTEGER, about: 'the version it is to replace; 0: there must be none' }),
);
const limit = integer({ min: 1, max: 200, default: 50 });
const after = maybe(text({ about: AFTER }));
const place = maybe(text({ max: 2000, about: 'next of the report to go on from' }));

/** Files: documents, their versions and bytes, and the work of the collector. */
export const fileRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/files',
    id: 'listFiles',
    tag: 'files',
    summary: 'Documents in the byte order of their ids, each with its live version.',
    permission: 'view',
    query: { namespace, prefix: maybe(text({ min: 0, max: 512, about: 'what their ids begin with' })), limit, after },
    answers: 'FileList',
    sharedMs: 1000,
    run: async ({ query: { namespace: space = '', prefix = '', limit: most, after: from }, services: { files } }) => {
      const rows = await files.list(space, prefix, readCursor(from, 1)?.[0], most + 1);
      const { items, after: next } = pageOf(rows, most, (row) => writeCursor(row.id));
      return { items: items.map((row) => shown(space, row)), after: next };
    },
  }),
  route({
    method: 'GET',
    path: '/files/stores',
    id: 'listFileStores',
    tag: 'files',
    summary:
      'The namespaces with a content store: what there is to collect, whether the collector has stopped itself, and whether this server can reach the bytes. Counts stop at 10,000.',
    permission: 'view',
    answers: 'FileStores',
    sharedMs: 2000,
    run: async ({ services }) => {
      const stores = await services.files.stores();
      return { items: stores.map((store) => ({ ...store, isOpen: services.hasFiles(store.namespace) })) };
    },
  }),
  route({
    method: 'GET',
    path: '/files/reloads',
    id: 'listFileReloads',
    tag: 'files',
    summary: 'Who fetches which bytes for hot copies now; at most 200.',
    permission: 'view',
    query: { namespace },
    answers: 'FileReloads',
    sharedMs: 1000,
    run: async ({ query, services: { files } }) => ({ items: await files.reloads(query.namespace ?? '') }),
  }),
  route({
    method: 'GET',
    path: '/files/one',
    id: 'getFile',
    tag: 'files',
    summary:
      'One version of a document, by default the live one; and of the document: who holds it, who waits for it, and who fetches it for hot copies.',
    permission: 'view',
    query: { namespace, id, version: maybe(version) },
    answers: 'FileDetail',
    run: async ({ query: { namespace: space = '', id: of, version: wanted }, services }) => {
      const { files } = services;
      const [found, explained] = await Promise.all([files.stat(space, of, wanted), files.explain(space, of)]);
      return {
        ...shown(space, found),
        meta: payloadOf(found.meta, { queue: 'file', kind: space }, {}),
        object: found.object,
        live: explained.version?.version ?? null,
        isOpen: services.hasFiles(space),
        holders: explained.holders.map(standing),
        waiters: explained.waiters.map(standing),
        reloads: explained.reloads,
      };
    },
  }),
  route({
    method: 'GET',
    path: '/files/one/history',
    id: 'fileHistory',
    tag: 'files',
    summary: 'The versions of a document, newest first: who, when, how large, and whether it can still be read.',
    permission: 'view',
    query: { namespace, id, limit, after },
    answers: 'FileList',
    run: async ({ query: { namespace: space = '', id: of, limit: most, after: from }, services: { files } }) => {
      const before = readCursor(from, 1, (part) => /^[1-9]\d{0,14}$/.test(part))?.[0];
      const rows = await files.history(space, of, before === undefined ? undefined : Number(before), most + 1);
      const { items, after: next } = pageOf(rows, most, (row) => writeCursor(String(row.version)));
      return { items: items.map((row) => shown(space, row)), after: next };
    },
  }),
  route({
    method: 'GET',
    path: '/files/one/content',
    id: 'readFile',
    tag: 'files',
    summary:
      'The bytes of a version, by default the live one, each block checked before it is passed on. Takes Range, If-Range and If-None-Match; the ETag is the SHA-256.',
    permission: 'file:read',
    query: { namespace, id, version: maybe(version) },
    answers: 'Json',
    givesBytes: true,
    run: readFileBytes,
  }),
  route({
    method: 'PUT',
    path: '/files/one/content',
    id: 'writeFile',
    tag: 'files',
    summary:
      'Writes the body as the next version of a document. Its Content-Type is kept, its author is the caller. Nothing is changed unless all of it came.',
    permission: 'file:write',
    query: {
      namespace,
      id,
      ifVersion,
      sha256: maybe(text({ min: 64, max: 64, pattern: [/^[0-9a-f]{64}$/, 'a SHA-256 in lower-case hex digits'] })),
    },
    takesBytes: true,
    status: 201,
    answers: 'FileWritten',
    target: ({ query }) => named(query.id, query.namespace),
    run: async (call) => written(await writeFileBytes(call)),
  }),
  route({
    method: 'POST',
    path: '/files/restore',
    id: 'restoreFile',
    tag: 'files',
    summary: 'Makes an earlier version the next one.',
    permission: 'file:write',
    body: { namespace, id, version, ifVersion },
    answers: 'FileWritten',
    target: ({ body }) => named(body.id, body.namespace),
    run: async ({ body: { namespace: space = '', id: of, version: from, ifVersion: over }, who, effects }) =>
      written(await effects.files(space).restore(of, from, { author: who.name, ...expected(over) })),
  }),
  route({
    method: 'POST',
    path: '/files/remove',
    id: 'removeFile',
    tag: 'files',
    summary: 'Removes a document. Its versions can be restored as long as they are kept.',
    permission: 'file:remove',
    body: { namespace, id, ifVersion },
    answers: 'FileRemoved',
    target: ({ body }) => named(body.id, body.namespace),
    run: async ({ body: { namespace: space = '', id: of, ifVersion: over }, effects }) => {
      await effects.files(space).remove(of, expected(over));
      return { id: of, removed: true };
    },
  }),
  route({
    method: 'POST',
    path: '/files/sweep',
    id: 'sweepFiles',
    tag: 'files',
    summary: 'Deletes objects from the content store that no version needs any more, up to so many.',
    permission: 'file:sweep',
    body: { namespace, limit: integer({ min: 1, max: 5000, default: 500 }) },
    answers: 'Swept',
    target: ({ body }) => named(undefined, body.namespace),
    run: ({ body, effects }) => effects.files(body.namespace ?? '').sweep({ limit: body.limit }),
  }),
  route({
    method: 'POST',
    path: '/files/reconcile',
    id: 'reconcileFiles',
    tag: 'files',
    summary:
      'Compares the content store with the database, and changes nothing: what lies there and belongs to nothing, and which versions have lost their bytes. Within a minute; larger stores are for `pawl file reconcile`.',
    permission: 'file:sweep',
    body: { namespace, from: place },
    answers: 'Reconciled',
    target: ({ body }) => named(undefined, body.namespace),
    run: ({ body, effects }) => compare(effects.files(body.namespace ?? ''), true, body.from),
  }),
  route({
    method: 'POST',
    path: '/files/quarantine',
    id: 'quarantineFiles',
    tag: 'files',
    summary:
      'Compares as /files/reconcile does, and takes what belongs to nothing out of the way; it is moved within the store, not deleted.',
    permission: 'file:repair',
    body: { namespace, from: place },
    answers: 'Reconciled',
    target: ({ body }) => named(undefined, body.namespace),
    run: ({ body, effects }) => compare(effects.files(body.namespace ?? ''), false, body.from),
  }),
  route({
    method: 'POST',
    path: '/files/rearm',
    id: 'rearmFiles',
    tag: 'files',
    summary:
      'Lets a collector go on that has stopped itself because the database and the store disagree about the past. Look first, and reconcile: what was written since is unknown to it.',
    permission: 'file:repair',
    body: { namespace, confirm: text({ min: 0, max: 255, about: 'the namespace once more' }) },
    answers: 'Done',
    target: ({ body }) => named(undefined, body.namespace),
    run: async ({ body: { namespace: space = '', confirm }, effects }) => {
      if (confirm !== space)
        throw new InvalidInput(`confirm says "${confirm}", not "${space}"; nothing was done`, { field: 'confirm' });
      const files = effects.files(space);
      const { haltedBecause } = await files.collector();
      if (haltedBecause === null) return { done: 'the collector had not stopped itself: nothing was done' };
      await files.rearm();
      return { done: `the collector goes on; it had stopped because ${haltedBecause}` };
    },
  }),
];

async function compare(files: Pick<Files, 'reconcile'>, dryRun: boolean, begin: string | undefined): Promise<object> {
  const late = 'the store has more than can be compared in a minute: use pawl file reconcile';
  const given = begin === undefined ? {} : { from: begin };
  const { next, ...report } = await within(COMPARE_MS, late, (signal) => files.reconcile({ dryRun, signal, ...given }));
  return { ...report, next: next ?? null };
}

function shown(space: string, row: PastVersion): object {
  const { id: of, version: number, state, size, sha256, contentType, author, writtenAt, retiredAt, keptUntil } = row;
  return {
    namespace: space,
    id: of,
    version: number,
    state,
    size,
    sha256,
    contentType,
    author,
    writtenAt,
    retiredAt,
    keptUntil,
  };
}

function standing({ pid, mode, since, applicationName, blockedBy }: DocumentLock): object {
  return { pid, mode, since: since ?? null, application: applicationName, blockedBy };
}

function written({ id: of, version: number, previous, size, sha256 }: WriteResult): object {
  return { id: of, version: number, previous, size, sha256 };
}

function expected(given: number | undefined): { readonly ifVersion?: number } {
  return given === undefined ? {} : { ifVersion: given };
}

/** In the form for the audit. */
function named(document: string | undefined, space: string | undefined): string {
  return `${document === undefined ? 'files' : `file ${document}`}${space ? ` of ${space}` : ''}`;
}
