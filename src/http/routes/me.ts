import { NotFound } from '../../base/errors.ts';
import { packageVersion } from '../../engine/version.ts';
import { text } from '../protocol/field.ts';
import { type AnyRoute, route } from '../protocol/route.ts';

/** Parts that have pages of their own. */
const PARTS = { queues: true, locks: true, actors: true, captures: true, files: true } as const;
/** The parts on a table of DynamoDB. */
const TABLE_PARTS = {
  queues: true,
  locks: false,
  actors: true,
  captures: false,
  files: false,
  // Lists and figures that need an index.
  jobs: false,
  errors: false,
  topics: false,
  charts: false,
  history: false,
  admin: false,
} as const;

/** The caller, its permissions, and the controls of `pawl dev`. Logging in and out needs no permission, and is in app.ts. */
export const visitorRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/me',
    id: 'me',
    tag: 'access',
    summary: 'The name and the permissions of the caller, and what this server serves.',
    permission: 'view',
    answers: 'Me',
    run: ({ who, services: { settings, table } }) => ({
      name: who.name,
      role: who.role ?? null,
      permissions: [...who.permissions],
      by: who.by,
      readOnly: settings.readOnly,
      title: settings.title ?? null,
      links: settings.links,
      version: packageVersion(),
      parts: { ...(table === undefined ? PARTS : TABLE_PARTS), dev: settings.dev !== undefined },
    }),
  }),
  route({
    method: 'GET',
    path: '/dev',
    id: 'listDevControls',
    tag: 'dev',
    summary: 'Accidents that can be caused here; only `pawl dev` has some.',
    permission: 'view',
    answers: 'DevControls',
    run: ({ services: { settings } }) => ({
      items: (settings.dev?.().controls ?? []).map((control) => {
        const { id, title, about, look, undo } = control;
        const isOn = control.isOn?.() ?? false;
        return { id, title: isOn ? (undo ?? title) : title, about, look, isOn };
      }),
    }),
  }),
  route({
    method: 'POST',
    path: '/dev/{id}',
    id: 'runDevControl',
    tag: 'dev',
    summary: 'Causes one of them.',
    permission: 'dev',
    params: { id: text({ max: 100 }) },
    answers: 'Done',
    target: ({ params }) => params.id,
    run: async ({ params, services: { settings } }) => {
      const control = settings.dev?.().controls.find(({ id }) => id === params.id);
      if (control === undefined) throw new NotFound(`there is no control "${params.id}"; GET /dev lists them`);
      return { done: await control.run() };
    },
  }),
];
