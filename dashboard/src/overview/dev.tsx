import type { JSX } from 'preact';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import { Card } from '../parts/card.tsx';
import { Icon } from '../parts/icon.tsx';
import { attempt } from '../parts/toast.tsx';

interface Controls {
  readonly items: readonly {
    readonly id: string;
    readonly title: string;
    readonly about: string;
    readonly look: string;
    readonly isOn: boolean;
  }[];
}

/** Buttons of `pawl dev` that cause accidents. */
export function Dev(): JSX.Element | null {
  const controls = useResource<Controls>('dev', 4000);
  if (controls.data === undefined) return null;
  const run = async (id: string): Promise<void> => {
    await attempt(async () => (await send<{ done: string }>('POST', `dev/${id}`)).done);
    controls.reload();
    refresh();
  };
  return (
    <Card title="Try what happens" class="dev">
      <div class="body">
        {controls.data.items.map(({ id, title, about, look, isOn }) => (
          <article key={id}>
            <button type="button" class={isOn ? 'primary' : ''} disabled={!can('dev')} onClick={() => void run(id)}>
              <Icon name="bolt" />
              {title}
            </button>
            <p class="small muted">
              {about} <a href={look}>See it</a>
            </p>
          </article>
        ))}
      </div>
    </Card>
  );
}
