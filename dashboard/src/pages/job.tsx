import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { can, getText, send } from '../api.ts';
import { exact } from '../format.ts';
import { refresh } from '../live.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { CopyAs, copy } from '../parts/copy.tsx';
import { confirm } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { Json } from '../parts/json.tsx';
import { LazyGraph } from '../parts/lazy-graph.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';
import { Timeline } from '../parts/timeline.tsx';
import { attempt } from '../parts/toast.tsx';
import { useResource } from '../resource.ts';
import { urlOf } from '../router.ts';
import type { JobDetail, Move, Page } from '../types.ts';

/** One job: its life, why it is where it is, what was tried, what it carries. */
export function JobPage({ id }: { readonly id: string }): JSX.Element {
  const job = useResource<JobDetail>(`jobs/${id}`);
  return (
    <>
      <Head
        title={`Job ${id}`}
        about={job.data && <About of={job.data} />}
        actions={job.data && <Actions of={job.data} />}
      />
      <Loaded of={job}>
        {(data) => (
          <>
            <div class="columns">
              <Card title="Where it is, and why">
                <div class="body">
                  <ul class="reasons">
                    {data.explanation.reasons.map(({ code, text, job: other }) => (
                      <li key={code}>
                        <Icon name="info" />
                        <span class="wrap">
                          {text} {other !== undefined && <a href={`jobs/${other}`}>Job {other}</a>}
                        </span>
                      </li>
                    ))}
                  </ul>
                  <Facts of={data} />
                </div>
              </Card>
              <Card title="Its life">
                <Life of={data} />
              </Card>
            </div>
            {data.error !== null && (
              <Card title="Error" actions={<Similar error={data.error} queue={data.queue} />}>
                <div class="body">
                  {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard */}
                  <pre class="trace" tabIndex={0} role="group" aria-label="Error">
                    {data.error}
                  </pre>
                </div>
              </Card>
            )}
            <Card title="Attempts">
              <div class="body">
                <Timeline job={data} />
              </div>
              <History of={data.history} />
            </Card>
            <div class="columns">
              <Card title="Payload" actions={!data.payloadHidden && <CopyPart id={id} part="payload" />}>
                <Part id={id} part="payload" isHidden={data.payloadHidden} />
              </Card>
              <Card title="Result">
                <Part key={data.settledAt} id={id} part="result" isHidden={data.payloadHidden} />
              </Card>
            </div>
            {data.key !== null && <Siblings id={id} of={data} />}
          </>
        )}
      </Loaded>
    </>
  );
}

function About({ of }: { readonly of: JobDetail }): JSX.Element {
  return (
    <>
      <Badge status={of.status} /> {of.kind} in <a href={`queues/${encodeURIComponent(of.queue)}`}>{of.queue}</a>,
      enqueued <Time at={of.enqueuedAt} />
    </>
  );
}

function Actions({ of: { id, status, queue, kind } }: { readonly of: JobDetail }): JSX.Element {
  const change = async (verb: 'retry' | 'cancel', body: object): Promise<void> => {
    await attempt(
      async () => `job ${id} is now ${(await send<{ status: string }>('POST', `jobs/${id}/${verb}`, body)).status}`,
    );
    refresh();
  };
  const cancel = async (): Promise<void> => {
    const text =
      status === 'in-progress'
        ? 'Its handler is told to end; what it has done outside of the database stays.'
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
  const canRetry = status === 'error' || status === 'cancelled';
  const canCancel = status === 'new' || status === 'in-progress';
  return (
    <>
      <CopyAs
        of={{
          Id: id,
          CLI: `pawl job get ${id}`,
          curl: `curl ${urlOf(`api/v1/jobs/${id}`)}`,
          TypeScript: `await createQueue(engine, ${JSON.stringify(queue)}, { kinds: { ${JSON.stringify(kind)}: {} } }).get(${JSON.stringify(id)})`,
        }}
      />
      <a class="button" href={urlOf(`api/v1/jobs/${id}`)} download={`job-${id}.json`}>
        JSON
      </a>
      {canCancel && can('job:cancel') && (
        <button type="button" class="danger" onClick={() => void cancel()}>
          Cancel
        </button>
      )}
      {canRetry && can('job:retry') && (
        <button type="button" class="primary" onClick={() => void change('retry', {})}>
          <Icon name="retry" size={14} />
          Retry
        </button>
      )}
    </>
  );
}

function Facts({ of }: { readonly of: JobDetail }): JSX.Element {
  const rows: (readonly [string, JSX.Element | string | number | null])[] = [
    ['Key', of.key],
    ['Priority', of.priority],
    ['Attempt', of.attempt],
    ['Runs at', of.runAt && exact(of.runAt)],
    ['Enqueued', exact(of.enqueuedAt)],
    ['Claimed', of.claimedAt && exact(of.claimedAt)],
    ['Settled', of.settledAt && exact(of.settledAt)],
    ['Process', of.processId && <code>{of.processId}</code>],
    ['Same unit', of.unit.length > 1 ? `${of.unit.length} jobs ran as one` : null],
    [
      'Moment',
      <a href={`history?around=${encodeURIComponent(of.settledAt ?? of.enqueuedAt)}`}>What else happened then</a>,
    ],
  ];
  return (
    <dl class="facts">
      {rows
        .filter(([, value]) => value !== null)
        .map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
    </dl>
  );
}

const LIFE: readonly (readonly [from: string, to: string, label: string])[] = [
  ['new', 'in-progress', 'claim'],
  ['in-progress', 'complete', ''],
  ['in-progress', 'error', ''],
  ['in-progress', 'new', 'retry'],
  ['in-progress', 'cancelled', ''],
  ['new', 'cancelled', 'cancel'],
];

/** Every way a job can go, and those that this one went. */
function Life({ of: { status, history } }: { readonly of: JobDetail }): JSX.Element {
  const times = new Map<string, number>();
  for (const { from, to } of history) times.set(`${from} ${to}`, (times.get(`${from} ${to}`) ?? 0) + 1);
  const edges = LIFE.map(([from, to, label]) => {
    const n = times.get(`${from} ${to}`) ?? 0;
    const many = n > 1 ? `${label} ×${n}` : label;
    return { from, to, ...(many === '' ? {} : { label: many }), look: n > 0 ? ('taken' as const) : ('soft' as const) };
  });
  const nodes = ['new', 'in-progress', 'complete', 'error', 'cancelled'].map((name) => ({
    id: name,
    title: name,
    ...(name === status ? { tone: toneOf(name), isCurrent: true, under: 'it is here' } : {}),
  }));
  return <LazyGraph title="Life of the job" nodes={nodes} edges={edges} direction="LR" />;
}

function toneOf(status: string): 'good' | 'bad' | 'busy' | 'wait' | 'idle' {
  return ({ complete: 'good', error: 'bad', 'in-progress': 'busy', new: 'wait' } as const)[status] ?? 'idle';
}

export function History({ of }: { readonly of: readonly Move[] }): JSX.Element {
  const rows = of.map((move, index) => ({ ...move, index })).reverse();
  return (
    <Table
      caption="Every move, newest first"
      rows={rows}
      keyOf={({ index }) => String(index)}
      columns={[
        { title: 'When', of: ({ at }) => <Time at={at} /> },
        { title: 'From', of: ({ from }) => from ?? <span class="muted">–</span> },
        { title: 'To', of: ({ to }) => <Badge status={to} /> },
        { title: 'Reason', of: ({ reason }) => reason },
        { title: 'Attempt', align: 'right', of: ({ attempt: n }) => n },
        {
          title: 'Error',
          of: ({ error }) =>
            error === null ? (
              <span class="muted">–</span>
            ) : (
              <div class="cut" title={error}>
                {error.split('\n')[0]}
              </div>
            ),
        },
      ]}
    />
  );
}

function Part({
  id,
  part,
  isHidden,
}: {
  readonly id: string;
  readonly part: string;
  readonly isHidden: boolean;
}): JSX.Element {
  const [text, setText] = useState<string | undefined>();
  useEffect(() => {
    if (isHidden) return;
    void attempt(async () => {
      setText(await getText(`jobs/${id}/${part}`));
      return undefined;
    });
  }, [id, part, isHidden]);
  if (isHidden) return <Empty title="Hidden">This needs the permission payload:read.</Empty>;
  if (text === undefined) return <p class="empty">Loading…</p>;
  if (text === 'null') return <Empty title="None" />;
  return (
    <div class="body">
      <Json text={text} label={part} />
    </div>
  );
}

function CopyPart({ id, part }: { readonly id: string; readonly part: string }): JSX.Element {
  return (
    <button
      type="button"
      class="plain"
      onClick={() => void getText(`jobs/${id}/${part}`).then((text) => copy(text, part))}
    >
      <Icon name="copy" size={14} />
      Copy
    </button>
  );
}

/** By the words of its first line that are no numbers, which differ from job to job. */
function Similar({ error, queue }: { readonly error: string; readonly queue: string }): JSX.Element | null {
  const words = (error.split('\n')[0] ?? '').match(/\b[\p{L}_]{3,}\b/gu)?.slice(0, 4) ?? [];
  if (words.length === 0) return null;
  const search = new URLSearchParams({ q: `status:error ${words.join(' ')}`, queue });
  return <a href={`jobs?${search}`}>Jobs with the same error</a>;
}

interface Sibling {
  readonly id: string;
  readonly kind: string;
  readonly status: string;
  readonly processId: string | null;
  readonly enqueuedAt: string;
}

function Siblings({ id, of }: { readonly id: string; readonly of: JobDetail }): JSX.Element {
  const siblings = useResource<Page<Sibling>>(`jobs/${id}/siblings`, 5000);
  return (
    <Card title={`Other jobs of key ${of.key}`}>
      <Loaded of={siblings}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="None" />
          ) : (
            <Table
              caption="Jobs of the same key"
              rows={items}
              keyOf={(one) => one.id}
              columns={[
                { title: 'Job', of: (one) => <a href={`jobs/${one.id}`}>{one.id}</a> },
                { title: 'Kind', of: ({ kind }) => kind },
                { title: 'Status', of: ({ status }) => <Badge status={status} /> },
                { title: 'Enqueued', of: ({ enqueuedAt }) => <Time at={enqueuedAt} /> },
                {
                  title: 'Unit',
                  of: ({ processId }) =>
                    processId !== null && processId === of.processId ? 'ran as one with this' : '',
                },
              ]}
            />
          )
        }
      </Loaded>
    </Card>
  );
}
