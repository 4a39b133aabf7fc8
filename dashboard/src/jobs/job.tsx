import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Moves } from '../charts/moves.tsx';
import { Timeline } from '../charts/timeline.tsx';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { JobDetail, Workers } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { type Fact, Facts, Reasons } from '../parts/facts.tsx';
import { Icon } from '../parts/icon.tsx';
import { OutLinks } from '../parts/out-links.tsx';
import { attempt } from '../parts/toast.tsx';
import { go, queueUrl, urlOf } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { jobsOfKey } from '../text/format.ts';
import { Name, QueueLink } from '../text/name.tsx';
import { Moment, Time } from '../text/time.tsx';
import { None, Trace } from '../text/words.tsx';
import { JobFlow } from './job-flow.tsx';
import { Life } from './job-life.tsx';
import { JobLocks } from './job-locks.tsx';
import { JobPart } from './job-part.tsx';
import { Siblings } from './job-siblings.tsx';
import { RetryEdited } from './retry-edited.tsx';

/** One job: its transitions, the reasons of its status, its attempts, and its payload. */
export function JobPage({ id }: { readonly id: string }): JSX.Element {
  const job = useResource<JobDetail>(`jobs/${id}`);
  return (
    <>
      <Head
        title={`Job ${id}`}
        about={job.data && <About of={job.data} />}
        actions={job.data && <Actions of={job.data} />}
      />
      <Loaded of={job}>{(data) => <Sections of={data} />}</Loaded>
    </>
  );
}

function Sections({ of }: { readonly of: JobDetail }): JSX.Element {
  const { id, error, payloadHidden: isHidden } = of;
  return (
    <>
      <div class="columns">
        <Card title="Where it is, and why">
          <div class="body">
            <Reasons of={of.explanation.reasons.map(({ text, job }) => ({ text, more: job && <Other id={job} /> }))} />
            <Facts of={factsOf(of)} />
          </div>
        </Card>
        <Card title="Its life">
          <Life of={of} />
        </Card>
      </div>
      {error !== null && (
        <Card title="Error" actions={<Similar error={error} queue={of.queue} />}>
          <Trace text={error} />
        </Card>
      )}
      <Card title="Attempts">
        <div class="body">
          <Timeline job={of} />
        </div>
        <details class="body twin">
          <summary>Every move</summary>
          <Moves of={of.history} />
        </details>
      </Card>
      <div class="columns">
        <JobPart id={id} part="payload" title="Payload" isHidden={isHidden} />
        {of.status === 'in-progress' ? (
          <JobPart id={id} part="progress" title="Progress" isHidden={isHidden} />
        ) : (
          <JobPart key={of.settledAt} id={id} part="result" title="Result" isHidden={isHidden} />
        )}
      </div>
      <JobFlow of={of} />
      <JobLocks of={of} />
      {of.key !== null && <Siblings id={id} of={of} />}
    </>
  );
}

function Other({ id }: { readonly id: string }): JSX.Element {
  return (
    <>
      {' '}
      <a href={`jobs/${id}`}>Job {id}</a>
    </>
  );
}

function About({ of }: { readonly of: JobDetail }): JSX.Element {
  return (
    <>
      <Badge status={of.status} /> <Name of={of.kind} /> in <QueueLink name={of.queue} />, enqueued{' '}
      <Time at={of.enqueuedAt} />
    </>
  );
}

function Actions({ of }: { readonly of: JobDetail }): JSX.Element {
  const { id, status, queue, kind } = of;
  const [isEditing, setEditing] = useState(false);
  const change = async (verb: 'retry' | 'cancel' | 'finish' | 'skip', body: object): Promise<void> => {
    await attempt(
      async () => `job ${id} is now ${(await send<{ status: string }>('POST', `jobs/${id}/${verb}`, body)).status}`,
    );
    refresh();
  };
  const cancel = async (): Promise<void> => {
    const text =
      status === 'in-progress'
        ? 'Its handler gets a signal to end. Its effects outside of the database stay.'
        : 'It will not be run.';
    const reason = await confirm({
      title: `Cancel job ${id}`,
      text,
      verb: 'Cancel it',
      isDanger: true,
      ask: { label: 'Reason, kept with the job' },
    });
    if (reason !== undefined) await change('cancel', reason === '' ? {} : { reason });
  };
  const finish = async (): Promise<void> => {
    const text = 'A person has done its work by hand. So it becomes complete and does not run.';
    if ((await confirm({ title: `Complete job ${id}`, text, verb: 'Complete it' })) !== undefined)
      await change('finish', {});
  };
  const erase = async (): Promise<void> => {
    const text = 'Its payload, result, errors, tags and history are erased, and this page with them.';
    if ((await confirm({ title: `Erase job ${id}`, text, verb: 'Erase it', isDanger: true })) === undefined) return;
    const isDone = await attempt(async () => {
      await send('DELETE', `jobs/${id}`);
      return `job ${id} is erased`;
    });
    if (isDone) go('jobs');
  };
  const canRetry = status === 'error' || status === 'cancelled';
  const codes = of.explanation.reasons.map(({ code }) => code);
  const isLater = status === 'new' && codes.some((code) => LATER.has(code));
  const isSettled = status !== 'new' && status !== 'in-progress';
  const canEdit = isSettled && can('job:retry') && can('job:enqueue') && can('payload:read');
  const canChange = status === 'new' && can('job:update') && can('payload:read');
  const canCancel = status === 'new' || status === 'in-progress';
  return (
    <>
      <CopyAs
        of={{
          Id: id,
          CLI: `pawl job get ${id}`,
          SQL: `select * from pawl.job where id = ${id}`,
          curl: curlOf(`jobs/${id}`),
          TypeScript: `await createQueue(engine, ${JSON.stringify(queue)}, { kinds: { ${JSON.stringify(kind)}: {} } }).get(${JSON.stringify(id)})`,
        }}
      />
      <OutLinks of="job" known={knownOf(of)} />
      <a class="button" href={urlOf(`api/v1/jobs/${id}`)} download={`job-${id}.json`}>
        <Icon name="download" size={14} />
        JSON
      </a>
      {can('job:enqueue') && can('payload:read') && (
        <a class="button" href={`${queueUrl(queue)}?add=${id}`}>
          <Icon name="plus" size={14} />
          Another like it
        </a>
      )}
      {(canRetry || status === 'new') && can('job:update') && (
        <button type="button" onClick={() => void finish()}>
          Complete by hand
        </button>
      )}
      {codes.includes('blocks_key') && can('job:retry') && (
        <button type="button" title="Its key goes on" onClick={() => void change('skip', {})}>
          Skip
        </button>
      )}
      {isLater && can('job:retry') && (
        <button type="button" onClick={() => void change('retry', {})}>
          Run now
        </button>
      )}
      {canCancel && can('job:cancel') && (
        <button type="button" class="danger" onClick={() => void cancel()}>
          Cancel
        </button>
      )}
      {status !== 'in-progress' && can('job:erase') && (
        <button type="button" class="danger" onClick={() => void erase()}>
          Erase
        </button>
      )}
      {(canEdit || canChange) && (
        <button type="button" onClick={() => setEditing(true)}>
          {canEdit ? 'Edit and retry' : 'Edit the payload'}
        </button>
      )}
      {isEditing && <RetryEdited of={of} onClose={() => setEditing(false)} />}
      {canRetry && can('job:retry') && (
        <button type="button" class="primary" onClick={() => void change('retry', {})}>
          <Icon name="retry" size={14} />
          Retry
        </button>
      )}
    </>
  );
}

/** The reasons to wait from which a retry makes the job due. */
const LATER: ReadonlySet<string> = new Set(['scheduled', 'backing_off', 'no_handler']);

function factsOf(of: JobDetail): readonly Fact[] {
  const at = (time: string | null): JSX.Element | null => (time === null ? null : <Moment at={time} />);
  return [
    [
      'Key',
      of.key && (
        <a href={jobsOfKey(of.key)}>
          <Name of={of.key} />
        </a>
      ),
    ],
    ['Group', of.group && <Name of={of.group} />],
    ['Priority', of.priority],
    ['Attempt', `${of.attempt} of ${of.attempts}`],
    ['Expires', at(of.expiresAt)],
    ['Tags', of.tags.length > 0 ? of.tags.join(', ') : null],
    ['Meta', of.meta === null || of.meta === undefined ? null : <code class="wrap">{JSON.stringify(of.meta)}</code>],
    ['Runs at', at(of.runAt)],
    [
      'Schedule',
      of.schedule && (
        <a href="schedules">
          <Name of={of.schedule.name} />
        </a>
      ),
    ],
    ['Tick', of.schedule && at(of.schedule.at)],
    ['Enqueued', at(of.enqueuedAt)],
    ['Claimed', at(of.claimedAt)],
    ['Settled', at(of.settledAt)],
    ['Worker', <WorkerOf job={of} />],
    ['Unit', of.processId && <code>{of.processId}</code>],
    ['Trace', of.traceparent && <code>{traceId(of.traceparent)}</code>],
    ['Comes from', of.retriedFrom && <a href={`jobs/${of.retriedFrom}`}>job {of.retriedFrom}, with another payload</a>],
    ['Done once more', of.retriedAs.length > 0 ? of.retriedAs.map((one) => <Other key={one} id={one} />) : null],
    ['Same unit', of.unit.length > 1 ? `${of.unit.length} jobs ran as one` : null],
    [
      'Moment',
      <a href={`history?around=${encodeURIComponent(of.settledAt ?? of.enqueuedAt)}`}>What else happened then</a>,
    ],
  ];
}

/** Searches by the words of the first line. Numbers are left out, because they differ from job to job. */
function Similar({ error, queue }: { readonly error: string; readonly queue: string }): JSX.Element | null {
  const words = (error.split('\n')[0] ?? '').match(/\b[\p{L}_]{3,}\b/gu)?.slice(0, 4) ?? [];
  // A user that may not see errors may not search them either.
  if (words.length === 0 || !can('error:read') || !can('payload:read')) return null;
  const search = new URLSearchParams({ q: `status:error ${words.join(' ')}`, queue });
  return <a href={`jobs?${search}`}>Jobs with the same error</a>;
}

function knownOf({
  id,
  queue,
  kind,
  key,
  traceparent,
  enqueuedAt,
  settledAt,
}: JobDetail): Record<string, string | null> {
  const trace = traceparent === null ? null : traceId(traceparent);
  return { id, queue, kind, key, trace, from: enqueuedAt, to: settledAt ?? new Date().toISOString() };
}

/** The trace of `00-<trace>-<span>-01`. */
function traceId(traceparent: string): string {
  return traceparent.split('-')[1] ?? traceparent;
}

/** The worker of the job, or its last worker. Its process is named if Pawl still knows it. */
function WorkerOf({ job }: { readonly job: JobDetail }): JSX.Element | null {
  const workers = useResource<Workers>('workers', 60_000);
  const id = job.history.findLast(({ worker }) => typeof worker === 'string')?.worker;
  if (typeof id !== 'string') return <None />;
  const found = workers.data?.queues.find((one) => one.id === id);
  if (found === undefined) return <>{workers.data === undefined ? '…' : `${id}, which is gone`}</>;
  return (
    <a href="workers">
      {found.host}:{found.pid}
    </a>
  );
}
