import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../data/resource.ts';
import type { Schedule, ScheduleRunList } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Loaded } from '../parts/card.tsx';
import { Time } from '../text/time.tsx';

/** The time of the last run, and the jobs of earlier ticks, which are loaded when the user opens them. */
export function ScheduleRuns({ of: { queue, name, lastAt } }: { readonly of: Schedule }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const path = `schedules/${encodeURIComponent(queue)}/${encodeURIComponent(name)}/runs`;
  const runs = useResource<ScheduleRunList>(isOpen ? path : undefined);
  return (
    <>
      <Time at={lastAt} />
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary aria-label={`past jobs of ${name}`}>past jobs</summary>
        {isOpen && (
          <Loaded of={runs}>
            {({ items }) =>
              items.length === 0 ? (
                <p class="small muted">It has enqueued nothing yet.</p>
              ) : (
                <ol class="small" aria-label={`Jobs of ${name}, newest first`}>
                  {items.map(({ at, job, status }) => (
                    <li key={job}>
                      <Time at={at} />{' '}
                      {status === null ? <span class="muted">no longer kept</span> : <a href={`jobs/${job}`}>{job}</a>}{' '}
                      {status !== null && <Badge status={status} />}
                    </li>
                  ))}
                </ol>
              )
            }
          </Loaded>
        )}
      </details>
    </>
  );
}
