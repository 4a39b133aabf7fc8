import type { JSX } from 'preact';
import { send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { Icon } from '../parts/icon.tsx';
import { attempt } from '../parts/toast.tsx';
import { queueUrl } from '../router.ts';
import { visibleName } from '../text/visible.ts';

/** Pauses or resumes a queue. Workers claim nothing from a paused queue. */
export function PauseQueue({ name, isPaused }: { readonly name: string; readonly isPaused: boolean }): JSX.Element {
  const change = async (): Promise<void> => {
    const verb = isPaused ? 'resume' : 'pause';
    await attempt(async () => (await send<{ done: string }>('POST', `${queueUrl(name)}/${verb}`)).done);
    refresh();
  };
  return (
    <button
      type="button"
      class={isPaused ? 'primary' : ''}
      aria-label={`${isPaused ? 'Resume' : 'Pause'} ${visibleName(name)}`}
      onClick={() => void change()}
    >
      <Icon name={isPaused ? 'play' : 'pause'} size={13} />
      {isPaused ? 'Resume' : 'Pause'}
    </button>
  );
}
