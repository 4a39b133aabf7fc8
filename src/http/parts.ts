import { HttpRefusal } from './failure.ts';
import { text } from './field.ts';
import { type AnyRoute, route } from './route.ts';

/** Parts that have a place here already. Their routes replace these when they come. */
export const PARTS = { queues: true, locks: true, actors: true, captures: true, files: false } as const;

/** What is not there says so, with a code of its own, instead of looking like a wrong address. */
export const absentRoutes: readonly AnyRoute[] = (['files'] as const).flatMap((part) => {
  const common = { method: 'GET', tag: part, permission: 'view', answers: 'Json' } as const;
  const run = (): never => {
    throw new HttpRefusal(
      'not_supported',
      `this version of Pawl serves no ${part} over HTTP; GET /me names the parts that there are`,
    );
  };
  const summary = `Not there yet: answers 501 not_supported.`;
  return [
    route({ ...common, path: `/${part}`, id: `list${part[0]?.toUpperCase()}${part.slice(1)}`, summary, run }),
    route({ ...common, path: `/${part}/{name}`, id: 'getFile', summary, params: { name: text() }, run }),
  ];
});
