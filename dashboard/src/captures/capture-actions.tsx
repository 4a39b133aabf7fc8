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

/** The actions on a capture. If an action makes much work for the database or cannot be undone, the user must type a text. */
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

/** @returns undefined if the user cancelled */
export async function install(entity: string): Promise<string | undefined> {
  const answer = await confirm({
    title: `Install ${entity}`,
    text: 'One transaction creates the triggers and the tables of its projections, as the program declares them. Writers of these tables wait for a moment. If a writer holds a table for more than 10 s, nothing is changed.',
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
      text: 'Every entity is compared with its row. Entities that differ are marked as changed, and the workers write them again.',
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
    text: 'The workers of the projection project every entity once more, while changes go on. Their progress is shown below “Back-fill”.',
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
    text: 'The triggers and all noted changes are removed. Later changes are not noticed. The tables that projections wrote stay.',
    verb: 'Detach it',
    isDanger: true,
    typed: entity,
  });
  if (answer === undefined) return undefined;
  await send('POST', `${at}/detach`, { confirm: entity });
  return `${entity} is detached`;
}
