import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { FileReload, FileStore, FileVersion, List, Reconciled, Swept } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { filter, query } from '../router.ts';
import { CopyAs, curlOf, inNamespace, shellWord } from '../text/copy.tsx';
import { bytes, plural } from '../text/format.ts';
import { Time } from '../text/time.tsx';
import { Count, Maybe } from '../text/words.tsx';

export function fileUrl({ namespace, id }: { readonly namespace: string; readonly id: string }): string {
  return `files/one?${new URLSearchParams({ ...(namespace === '' ? {} : { namespace }), id })}`;
}

/** Documents, their stores, the objects to collect, and the processes that fetch hot copies. */
export function FilesPage(): JSX.Element {
  const stores = useResource<List<FileStore>>('files/stores', 5000);
  const items = stores.data?.items ?? [];
  const wanted = query.value.get('namespace');
  const namespace = wanted ?? items[0]?.namespace ?? '';
  return (
    <>
      <Head
        title="Files"
        about="Documents whose bytes are outside of the database, with every version, and the bytes that can be swept."
      />
      <Documents namespace={namespace} all={items.map((store) => store.namespace)} />
      <Card title="Content stores">
        <Loaded of={stores}>
          {() =>
            items.length === 0 ? (
              <Empty title="No content store is known yet">
                A program registers its store when it first writes:
                <Example>{`const files = createFiles(engine, { content: disk('/var/files') });
await files.write(undefined, 'prices/2026.csv', 'name;price');`}</Example>
              </Empty>
            ) : (
              <Table caption="Content stores" rows={items} keyOf={(store) => store.namespace} columns={STORES} />
            )
          }
        </Loaded>
      </Card>
      {items.map((store) => store.haltedAt !== null && <Halted key={store.namespace} of={store} />)}
      <Reloads namespace={namespace} />
    </>
  );
}

export function Namespace({ of }: { readonly of: string }): JSX.Element {
  return of === '' ? <span class="muted">no namespace</span> : <>{of}</>;
}

interface DocumentsProps {
  readonly namespace: string;
  readonly all: readonly string[];
}

function Documents({ namespace, all }: DocumentsProps): JSX.Element {
  const prefix = query.value.get('prefix') ?? '';
  const asked = `files?${new URLSearchParams({ namespace, ...(prefix === '' ? {} : { prefix }) })}`;
  const { page, rows, next } = useLongList<FileVersion>(asked);
  return (
    <Card title="Documents" actions={<CopyAs of={elsewhere(namespace, prefix, asked)} />}>
      <div class="body filters">
        <input
          type="search"
          aria-label="Begin of the id"
          placeholder="Begin of the id"
          value={prefix}
          onChange={(event) => filter({ prefix: event.currentTarget.value })}
        />
        {all.length > 1 && (
          <select
            aria-label="Namespace"
            value={namespace}
            onChange={(event) => filter({ namespace: event.currentTarget.value })}
          >
            {all.map((one) => (
              <option key={one} value={one}>
                {one === '' ? 'no namespace' : one}
              </option>
            ))}
          </select>
        )}
      </div>
      <Loaded of={page}>
        {() =>
          rows.length === 0 ? (
            <Empty title="There is none">
              {prefix === '' ? 'Nothing was written yet.' : 'No id begins so; upper and lower case matter.'}
            </Empty>
          ) : (
            <>
              <Table caption="Documents" rows={rows} keyOf={({ id }) => id} columns={DOCUMENTS} />
              <ShowMore next={next} />
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

const DOCUMENTS: readonly Column<FileVersion>[] = [
  {
    title: 'Document',
    of: (row) => (
      <a href={fileUrl(row)}>
        <strong class="wrap">{row.id}</strong>
      </a>
    ),
  },
  { title: 'Version', align: 'right', of: ({ version }) => version },
  { title: 'Size', align: 'right', of: ({ size }) => bytes(size) },
  { title: 'Type', of: ({ contentType }) => <Maybe of={contentType} /> },
  { title: 'By', of: ({ author }) => <Maybe of={author} /> },
  { title: 'Written', of: ({ writtenAt }) => <Time at={writtenAt} /> },
  { title: 'SHA-256', of: ({ sha256 }) => <code title={sha256}>{sha256.slice(0, 12)}…</code> },
];

const STORES: readonly Column<FileStore>[] = [
  {
    title: 'Namespace',
    of: ({ namespace }) => (
      <button type="button" class="link" onClick={() => filter({ namespace, prefix: undefined })}>
        <Namespace of={namespace} />
      </button>
    ),
  },
  { title: 'Kind', of: ({ kind }) => kind },
  { title: 'Store', of: ({ store }) => <code class="wrap">{store}</code> },
  { title: 'Uploads under way', align: 'right', of: ({ pending }) => <Count of={pending} /> },
  { title: 'Old versions', align: 'right', of: ({ retired }) => <Count of={retired} /> },
  { title: 'To sweep', align: 'right', of: ({ due }) => <Count of={due} /> },
  {
    title: 'Collector',
    of: ({ haltedAt }) => (
      <Badge status={haltedAt === null ? 'live' : 'held'}>{haltedAt === null ? 'runs' : 'halted'}</Badge>
    ),
  },
  { title: 'Action', isAction: true, of: (store) => <StoreActions of={store} /> },
];

function StoreActions({ of: { namespace, isOpen } }: { readonly of: FileStore }): JSX.Element {
  const [found, setFound] = useState<Reconciled | undefined>();
  const name = namespace === '' ? 'no namespace' : namespace;
  if (!can('file:sweep')) return <span class="muted">–</span>;
  if (!isOpen) return <span class="small muted">this server has not got the store</span>;
  const sweep = async (): Promise<void> => {
    const answer = await confirm({
      title: `Sweep ${name}`,
      text: 'Deletes at most 500 objects that are not needed any more: expired versions, and uploads that did not finish.',
      verb: 'Sweep',
      isDanger: true,
      typed: 'sweep',
    });
    if (answer === undefined) return;
    await attempt(async () => {
      const { deleted, failed } = await send<Swept>('POST', 'files/sweep', { namespace });
      return `${deleted} objects are deleted${failed > 0 ? `, ${failed} could not be` : ''}`;
    });
    refresh();
  };
  const compare = (): Promise<boolean> =>
    attempt(async () => {
      const result = await send<Reconciled>('POST', 'files/reconcile', { namespace });
      setFound(result);
      return `${result.seen} objects are compared`;
    });
  const quarantine = async (): Promise<void> => {
    const answer = await confirm({
      title: `Quarantine in ${name}`,
      text: 'Objects that belong to nothing are moved to a quarantine within the store. Nothing is deleted.',
      verb: 'Take them away',
      typed: 'quarantine',
    });
    if (answer === undefined) return;
    await attempt(async () => {
      const result = await send<Reconciled>('POST', 'files/quarantine', { namespace });
      setFound(result);
      return inQuarantine(result);
    });
  };
  return (
    <>
      <div class="actions">
        <button type="button" aria-label={`Compare ${name} with the database`} onClick={() => void compare()}>
          Compare
        </button>
        <button type="button" class="danger" aria-label={`Sweep ${name}`} onClick={() => void sweep()}>
          Sweep
        </button>
      </div>
      {found !== undefined && <Comparison of={found} />}
      {found !== undefined && found.strangers.length > found.quarantined.length && can('file:repair') && (
        <button type="button" aria-label={`Quarantine in ${name}`} onClick={() => void quarantine()}>
          Take them to quarantine
        </button>
      )}
    </>
  );
}

/** Objects of the store that belong to nothing, and objects that are missing there or have the wrong size. */
function Comparison({ of }: { readonly of: Reconciled }): JSX.Element {
  const { seen, strangers, quarantined, damaged, failed, next } = of;
  const isWhole = damaged.length === 0 && failed.length === 0;
  return (
    <div class="small comparison">
      <Badge status={isWhole ? 'current' : 'failed'}>
        {isWhole ? `all there, of ${seen}` : `${damaged.length} damaged, of ${seen}`}
      </Badge>
      <ul>
        {damaged.map(({ id, version, damage }) => (
          <li key={`${id} ${version}`} class="wrap">
            {id}, version {version}: {damage === 'missing' ? 'its bytes are missing' : 'its size is wrong'}
          </li>
        ))}
        {strangers.length > 0 && (
          <li>
            {plural(strangers.length, 'object')} {strangers.length === 1 ? 'belongs' : 'belong'} to nothing
          </li>
        )}
        {quarantined.length > 0 && <li>{inQuarantine(of)}</li>}
        {failed[0] !== undefined && (
          <li class="wrap">
            the store failed at {plural(failed.length, 'object')}: {failed[0].error}
          </li>
        )}
        {next !== null && <li>there is more than was compared; pawl file reconcile goes on</li>}
      </ul>
    </div>
  );
}

function inQuarantine({ quarantined: { length } }: Reconciled): string {
  return `${plural(length, 'object')} ${length === 1 ? 'is' : 'are'} in quarantine`;
}

function Halted({ of: { namespace, haltedAt, haltedBecause, isOpen } }: { readonly of: FileStore }): JSX.Element {
  const goOn = async (): Promise<void> => {
    const answer = await confirm({
      title: 'Let the collector go on',
      text: 'From now on this database decides which objects of the store are deleted. Be sure that no other database does. Compare first: if this database went back to an earlier moment, it does not know the objects that were written after it.',
      verb: 'Let it go on',
      isDanger: true,
      typed: namespace === '' ? 'go on' : namespace,
    });
    if (answer === undefined) return;
    await attempt(
      async () => (await send<{ done: string }>('POST', 'files/rearm', { namespace, confirm: namespace })).done,
    );
    refresh();
  };
  return (
    <p class="error">
      <Icon name="warn" />
      <span class="wrap grow">
        The collector of <Namespace of={namespace} /> stopped itself <Time at={haltedAt} />: {haltedBecause}
      </span>
      {can('file:repair') && isOpen && (
        <button type="button" onClick={() => void goOn()}>
          Let it go on…
        </button>
      )}
    </p>
  );
}

/** The processes that fetch bytes for a hot copy now. One process of each scope fetches, and the others wait for it. */
function Reloads({ namespace }: { readonly namespace: string }): JSX.Element {
  const reloads = useResource<List<FileReload>>(`files/reloads?${new URLSearchParams({ namespace })}`, 3000);
  return (
    <Card title="Hot copies being fetched">
      <Loaded of={reloads}>
        {({ items }) =>
          items.length === 0 ? (
            <p class="body muted">No process fetches a hot copy now.</p>
          ) : (
            <Table
              caption="Hot copies being fetched"
              rows={items}
              keyOf={({ sha256, scope }) => `${sha256} ${scope}`}
              columns={[
                { title: 'SHA-256', of: ({ sha256 = '' }) => <code title={sha256}>{sha256.slice(0, 12)}…</code> },
                ...RELOADS,
              ]}
            />
          )
        }
      </Loaded>
    </Card>
  );
}

export const RELOADS: readonly Column<FileReload>[] = [
  { title: 'Scope', of: ({ scope }) => scope },
  { title: 'Process', of: ({ host, pid }) => `${host}:${pid}` },
  { title: 'Since', of: ({ since }) => <Time at={since} /> },
  { title: 'Lease until', of: ({ expiresAt }) => <Time at={expiresAt} /> },
];

function elsewhere(namespace: string, prefix: string, asked: string): Record<string, string> {
  const { option, given } = inNamespace(namespace);
  return {
    CLI: `pawl file list${prefix === '' ? '' : ` ${shellWord(prefix)}`}${option}`,
    curl: curlOf(asked),
    TypeScript: `await createFiles(engine, store${given}).list(${prefix === '' ? '' : JSON.stringify({ prefix })})`,
  };
}
