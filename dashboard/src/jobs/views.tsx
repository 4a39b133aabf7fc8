import type { JSX } from 'preact';
import { kept } from '../data/kept.ts';
import { confirm } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { Menu } from '../parts/menu.tsx';
import { say } from '../parts/toast.tsx';
import { go, path, query } from '../router.ts';
import { copy } from '../text/copy.tsx';

/** Filters with a name. The filters are in the address, so that a user can send a view to another one as a link. */
interface View {
  readonly name: string;
  readonly search: string;
}

const OURS: readonly View[] = [
  { name: 'In error, within a day', search: 'q=status%3Aerror+since%3A1d' },
  { name: 'In progress now', search: 'q=status%3Ain-progress' },
];
const views = kept<readonly View[]>('pawl-views', isViews, []);

/** Views of the list of jobs: built-in ones, and those that this browser keeps. */
export function Views(): JSX.Element {
  const search = query.value.toString();
  const save = async (): Promise<void> => {
    const name = await confirm({
      title: 'Save this view',
      text: 'This browser keeps its search, queue and columns under a name.',
      verb: 'Save',
      ask: { label: 'Name', isRequired: true },
    });
    if (name === undefined) return;
    views.value = [...views.value.filter((view) => view.name !== name), { name, search }];
    say(`view "${name}" is saved`);
  };
  return (
    <Menu title="Views" icon="star">
      {[...OURS, ...views.value].map((view) => (
        <div key={view.name} class="row">
          <button
            type="button"
            class="grow"
            aria-pressed={view.search === search}
            onClick={() => go(`${path.value}?${view.search}`)}
          >
            {view.name}
          </button>
          {views.value.includes(view) && (
            <button
              type="button"
              class="plain"
              aria-label={`Forget view ${view.name}`}
              onClick={() => {
                views.value = views.value.filter((one) => one !== view);
              }}
            >
              <Icon name="cross" size={13} />
            </button>
          )}
        </div>
      ))}
      <hr />
      <button type="button" disabled={search === ''} onClick={() => void save()}>
        <Icon name="plus" size={13} />
        Save this view…
      </button>
      <button type="button" onClick={() => void copy(location.href, 'The address')}>
        <Icon name="copy" size={13} />
        Copy its address
      </button>
    </Menu>
  );
}

function isViews(value: unknown): value is readonly View[] {
  return (
    Array.isArray(value) &&
    value.every((one) => typeof one?.name === 'string' && typeof one.search === 'string' && one.name !== '')
  );
}
