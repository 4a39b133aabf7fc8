import type { JSX } from 'preact';
import { can, get, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import type { CaptureDetail, CaptureReconciled } from '../data/types.ts';
import { confirm } from '../parts/dialog.tsx';
import { Menu } from '../parts/menu.tsx';
import { attempt, say } from '../parts/toast.tsx';
import { count, plural } from '../text/format.ts';

interface CaptureActionsProps {
  readonly of: CaptureDetail;
  readonly reload: () => void;
}

/** What can be done with a capture. What makes work for the database, or cannot be taken back, has to be typed. */
export function CaptureActions({ of, reload }: CaptureActionsProps): JSX.Element {
  const at = `captures/${encodeURIComponent(of.entity)}`;
  const isFollowed = of.consumers.length > 0;
  const run = (work: () => Promise<string | undefined>): void => {
    void attempt(work).then(() => {
      reload();
      refresh();
    });
  };
  return (
    <Menu title="Actions" icon="bolt" label={`Actions on ${of.entity}`}>
      <button type="button" onClick={() => run(() => verify(at))}>
        Verify now
      </button>
      {can('capture:repair') && isFollowed && of.isDeclared && (
        <button type="button" onClick={() => run(() => compare(at, of.entity, true))}>
          Compare, and change nothing
        </button>
      )}
      {can('capture:repair') && isFollowed && of.isDeclared && (
        <button type="button" onClick={() => run(() => compare(at, of.entity, false))}>
          Compare, and mend…
        </button>
      )}
      {can('capture:repair') && isFollowed && (
        <button type="button" onClick={() => run(() => replay(at, of.entity))}>
          Replay everything…
        </button>
      )}
      {can('capture:install') && of.isDeclared && (
        <button type="button" onClick={() => run(() => install(of.entity))}>
          Install as declared…
        </button>
      )}
      {can('capture:detach') && (
        <button type="button" class="danger" onClick={() => run(() => detach(at, of.entity))}>
          Detach…
        </button>
      )}
    </Menu>
  );
}

async function verify(at: string): Promise<string> {
  const { isWhole, differences } = await get<{ isWhole: boolean; differences: readonly unknown[] }>(`${at}/verify`);
  if (isWhole) return 'the triggers stand as they were installed: no change can go unnoticed';
  throw new Error(`not as it was installed: ${plural(differences.length, 'difference')}, see the list`);
}

/** @returns undefined when it was thought better of */
export async function install(entity: string): Promise<string | undefined> {
  const answer = await confirm({
    title: `Install ${entity}`,
    text: 'The triggers, and the tables of its projections, are made as the program declares them, in one transaction. Writers of these tables wait for a moment; if one is at it for more than 10 s, nothing is done.',
    verb: 'Install',
    typed: entity,
  });
  if (answer === undefined) return undefined;
  const { mended } = await send<{ mended: readonly unknown[] }>('POST', `captures/${encodeURIComponent(entity)}/apply`);
  return mended.length === 0
    ? 'all was as declared: nothing was done'
    : `${plural(mended.length, 'thing')} made or mended`;
}

async function compare(at: string, entity: string, isDryRun: boolean): Promise<string | undefined> {
  if (!isDryRun) {
    const answer = await confirm({
      title: `Compare and mend ${entity}`,
      text: 'Every entity is compared with its row; what differs is marked as changed, and the workers write it anew.',
      verb: 'Compare and mend',
      typed: entity,
    });
    if (answer === undefined) return undefined;
  }
  const { items } = await send<CaptureReconciled>('POST', `${at}/reconcile`, { dryRun: isDryRun });
  for (const { name, checked, drifted, keys } of items) {
    const what = drifted === 0 ? 'all are right' : drifted === 1 ? '1 is wrong' : `${drifted} are wrong`;
    const which = keys.length > 0 ? `: ${keys.slice(0, 5).join(', ')}` : '';
    say(`${name}: ${count(checked, Infinity)} compared, ${what}${which}`, drifted === 0 ? 'good' : 'warn');
  }
  return undefined;
}

async function replay(at: string, entity: string): Promise<string | undefined> {
  const answer = await confirm({
    title: `Replay ${entity}`,
    text: 'Every entity is projected once more, while changes go on. The workers of the projection do it; how far they are stands below “Back-fill”.',
    verb: 'Replay',
    typed: entity,
  });
  if (answer === undefined) return undefined;
  const { begun } = await send<{ begun: readonly string[] }>('POST', `${at}/replay`, {});
  return begun.length === 0 ? 'nothing was begun' : `begun: ${begun.join(', ')}`;
}

async function detach(at: string, entity: string): Promise<string | undefined> {
  const answer = await confirm({
    title: `Detach ${entity}`,
    text: 'The triggers are taken out, and everything noted goes with them: changes go unnoticed from then on. Tables that projections wrote are left.',
    verb: 'Detach it',
    isDanger: true,
    typed: entity,
  });
  if (answer === undefined) return undefined;
  await send('POST', `${at}/detach`, { confirm: entity });
  return `${entity} is detached`;
}
