import type { JSX } from 'preact';
import { send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import type { QueueRemoved } from '../data/types.ts';
import { confirm } from '../parts/dialog.tsx';
import { attempt } from '../parts/toast.tsx';
import { go, queueUrl } from '../router.ts';
import { plural } from '../text/format.ts';

/** Removes a queue that no program uses any more. If the queue is in use, the server refuses, and its message says what uses it. */
export function RemoveQueue({ name }: { readonly name: string }): JSX.Element {
  const remove = async (): Promise<void> => {
    const answer = await confirm({
      title: `Remove queue ${name}`,
      text: 'This removes its jobs, their history, its schedules, subscriptions and batches. It is refused while the queue is in use.',
      verb: 'Remove it',
      isDanger: true,
      typed: name,
    });
    if (answer === undefined) return;
    const isDone = await attempt(async () => {
      const { jobs } = await send<QueueRemoved>('DELETE', queueUrl(name));
      return `queue ${name} is removed, with ${plural(jobs, 'job')}`;
    });
    refresh();
    if (isDone) go('queues');
  };
  return (
    <button type="button" class="danger" onClick={() => void remove()}>
      Remove
    </button>
  );
}
