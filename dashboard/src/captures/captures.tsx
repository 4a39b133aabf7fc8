import type { JSX } from 'preact';
import { can, me } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Capture, CaptureList, Change, List } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { Icon } from '../parts/icon.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { filter, query } from '../router.ts';
import { CopyAs, curlOf, shellWord } from '../text/copy.tsx';
import { count, duration } from '../text/format.ts';
import { Time } from '../text/time.tsx';
import { install } from './capture-actions.tsx';
import { Coverage } from './capture-coverage.tsx';

/** Changes in the application's tables: the consumers that follow them, how far behind these are, and the newest changes. */
export function CapturesPage(): JSX.Element {
  const captures = useResource<CaptureList>('captures');
  const wanted = query.value.get('entity') ?? '';
  const shown = captures.data?.items.find(({ entity }) => entity === wanted) ?? captures.data?.items[0];
  return (
    <>
      <Head
        title="Capture"
        about="Changes of your tables by any program, and how far behind their consumers are."
        actions={<CopyAs of={elsewhere(shown?.entity)} />}
      />
      <Card title="Consumers">
        <Loaded of={captures}>{({ items }) => <Consumers of={items} />}</Loaded>
      </Card>
      {captures.data !== undefined && captures.data.culprits.length > 0 && <Culprits of={captures.data.culprits} />}
      {captures.data?.missing.map((entity) => (
        <Missing key={entity} entity={entity} reload={captures.reload} />
      ))}
      {shown !== undefined && <Coverage of={shown} />}
      {shown !== undefined && <Tail entity={shown.entity} />}
    </>
  );
}

/** A capture that the program declares and that is not installed yet. */
function Missing({ entity, reload }: { readonly entity: string; readonly reload: () => void }): JSX.Element {
  return (
    <p class="error">
      <Icon name="warn" />
      <span class="wrap grow">
        The program declares <strong>{entity}</strong>, but it is not installed: its changes go unnoticed.
      </span>
      {can('capture:install') && (
        <button type="button" onClick={() => void attempt(() => install(entity)).then(reload)}>
          Install {entity}
        </button>
      )}
    </p>
  );
}

interface Row extends Pick<Capture, 'entity' | 'root' | 'tables'> {
  readonly consumer: Capture['consumers'][number] | undefined;
}

function Consumers({ of }: { readonly of: readonly Capture[] }): JSX.Element {
  if (of.length === 0)
    return (
      <Empty title="Nothing is captured yet">
        A program names the tables and installs the triggers:
        <Example>{`await createCapture(engine, { entity: 'customer', root: 'customer' }).apply();`}</Example>
      </Empty>
    );
  const rows = of.flatMap(({ entity, root, tables, consumers }): Row[] =>
    consumers.length === 0
      ? [{ entity, root, tables, consumer: undefined }]
      : consumers.map((consumer) => ({ entity, root, tables, consumer })),
  );
  return (
    <Table
      caption="Consumers of captures"
      rows={rows}
      keyOf={({ entity, consumer }) => `${entity} ${consumer?.name}`}
      columns={[
        {
          title: 'Entity',
          of: ({ entity, root, tables }) => (
            <>
              <button type="button" class="link" onClick={() => filter({ entity })}>
                <strong>{entity}</strong>
              </button>
              <br />
              <span class="small muted" title={tables.join(', ')}>
                {root}, {tables.length} {tables.length === 1 ? 'table' : 'tables'}
              </span>
            </>
          ),
        },
        { title: 'Consumer', of: ({ consumer }) => consumer?.name ?? <span class="muted">none</span> },
        { title: 'Delivers', of: ({ consumer }) => consumer?.guarantee ?? <span class="muted">–</span> },
        { title: 'Behind', align: 'right', of: ({ consumer }) => count(consumer?.outstanding) },
        { title: 'Oldest', align: 'right', of: ({ consumer }) => duration(consumer?.oldestMs) },
        {
          title: 'Failing',
          of: ({ consumer }) =>
            consumer === undefined || consumer.failing === 0 ? (
              <span class="muted">none</span>
            ) : (
              <span title={consumer.error ?? ''}>
                <Badge status="failed">{String(consumer.failing)}</Badge>
              </span>
            ),
        },
        {
          title: 'Back-fill',
          of: ({ consumer }) =>
            typeof consumer?.sweepDone !== 'number' ? (
              <span class="muted">–</span>
            ) : (
              `${count(consumer.sweepDone, Infinity)} of about ${count(consumer.sweepTotal ?? 0, Infinity)}`
            ),
        },
      ]}
    />
  );
}

function Culprits({ of }: { readonly of: CaptureList['culprits'] }): JSX.Element {
  return (
    <Card title="Transactions that keep them behind">
      <Table
        caption="Old transactions"
        rows={of}
        keyOf={({ pid, ageMs }) => `${pid} ${ageMs}`}
        columns={[
          { title: 'Backend', align: 'right', of: ({ pid }) => pid ?? 'prepared' },
          { title: 'Application', of: ({ application }) => application || <span class="muted">no name</span> },
          { title: 'User', of: ({ user }) => user },
          { title: 'State', of: ({ state }) => state },
          { title: 'Open for', align: 'right', of: ({ ageMs }) => duration(ageMs) },
        ]}
      />
    </Card>
  );
}

function Tail({ entity }: { readonly entity: string }): JSX.Element {
  const words = query.value.get('words') ?? '';
  const changes = useResource<List<Change>>(
    `captures/${encodeURIComponent(entity)}/changes${words === '' ? '' : `?words=${encodeURIComponent(words)}`}`,
  );
  return (
    <Card title={`Newest changes of ${entity}`}>
      <div class="body filters">
        <input
          type="search"
          aria-label="Words in the values"
          placeholder="words in the values"
          value={words}
          onChange={(event) => filter({ words: event.currentTarget.value })}
        />
      </div>
      <Loaded of={changes}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="None">
              Changes are kept only for tables with a history:
              <Example>{`createCapture(engine, { entity, root, history: { customer: { rows: 'both' } } });`}</Example>
            </Empty>
          ) : (
            <Table
              caption="Changes, newest first"
              rows={items}
              keyOf={({ id }) => id}
              columns={[
                { title: 'When', of: ({ at }) => <Time at={at} /> },
                { title: 'Table', of: ({ table }) => <code>{table}</code> },
                { title: 'Change', of: ({ op }) => op },
                { title: 'Key', of: ({ key }) => key ?? <span class="muted">–</span> },
                { title: 'What', of: (change) => <Difference of={change} /> },
                { title: 'By', of: ({ actor, dbUser }) => actor ?? dbUser },
              ]}
            />
          )
        }
      </Loaded>
    </Card>
  );
}

/** The values that the change replaced. */
function Difference({ of: { before, after } }: { readonly of: Change }): JSX.Element {
  if (me.value?.permissions.includes('payload:read') !== true) return <span class="muted">hidden</span>;
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].filter(
    (name) => before?.[name] !== after?.[name],
  );
  return (
    <ul class="small">
      {names.slice(0, 8).map((name) => (
        <li key={name} class="wrap">
          <code>{name}</code>: {before !== null && <del>{before[name] ?? 'null'}</del>}{' '}
          {after !== null && <ins>{after[name] ?? 'null'}</ins>}
        </li>
      ))}
    </ul>
  );
}

function elsewhere(entity: string | undefined): Record<string, string> {
  return {
    CLI: `pawl capture status${entity === undefined ? '' : ` ${shellWord(entity)}`}`,
    curl: curlOf('captures'),
    TypeScript: `await createCaptureAdmin(engine).status(${entity === undefined ? '' : JSON.stringify(entity)})`,
  };
}
