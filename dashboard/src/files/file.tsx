import type { JSX } from 'preact';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { FileDetail, FileStanding, FileVersion, FileWritten } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { type Fact, Facts } from '../parts/facts.tsx';
import { Icon } from '../parts/icon.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { query, urlOf } from '../router.ts';
import { CopyAs, curlOf, inNamespace, shellWord } from '../text/copy.tsx';
import { bytes } from '../text/format.ts';
import { Moment, Time } from '../text/time.tsx';
import { Maybe } from '../text/words.tsx';
import { Namespace, RELOADS } from './files.tsx';

/** One document: its live version, earlier versions, and the processes that work on it. */
export function FilePage(): JSX.Element {
  const id = query.value.get('id') ?? '';
  const namespace = query.value.get('namespace') ?? '';
  const of = new URLSearchParams({ namespace, id });
  const file = useResource<FileDetail>(`files/one?${of}`);
  const { page, rows, next } = useLongList<FileVersion>(`files/one/history?${of}`);
  const isOpen = file.data?.isOpen === true;
  return (
    <>
      <Head
        title={id}
        about={
          <>
            {file.data && <Badge status={file.data.state}>{`version ${file.data.version}`}</Badge>} a document of{' '}
            <Namespace of={namespace} />
          </>
        }
        actions={<Actions id={id} namespace={namespace} file={file.data} />}
      />
      <Loaded of={file}>
        {(data) => (
          <div class="columns">
            <Card title="Live version">
              <div class="body">
                <Facts of={factsOf(data)} />
              </div>
            </Card>
            <Card title="Who is at it">
              <Standings of={data} />
            </Card>
          </div>
        )}
      </Loaded>
      <Card title="Versions">
        <Loaded of={page}>
          {() => (
            <>
              <Table
                caption="Versions, newest first"
                rows={rows}
                keyOf={({ version }) => String(version)}
                columns={[
                  { title: 'Version', align: 'right', of: ({ version }) => version },
                  { title: 'State', of: ({ state }) => <Badge status={state} /> },
                  { title: 'Size', align: 'right', of: ({ size }) => bytes(size) },
                  { title: 'By', of: ({ author }) => <Maybe of={author} /> },
                  { title: 'Written', of: ({ writtenAt }) => <Time at={writtenAt} /> },
                  { title: 'Replaced', of: ({ retiredAt }) => <Time at={retiredAt} /> },
                  { title: 'Kept until', of: ({ keptUntil }) => <Time at={keptUntil} /> },
                  { title: 'SHA-256', of: ({ sha256 }) => <code title={sha256}>{sha256.slice(0, 12)}…</code> },
                  {
                    title: 'Action',
                    isAction: true,
                    of: (row) => <VersionActions of={row} isOpen={isOpen} live={file.data?.live ?? null} />,
                  },
                ]}
              />
              <ShowMore next={next} />
            </>
          )}
        </Loaded>
      </Card>
    </>
  );
}

function factsOf(of: FileDetail): readonly Fact[] {
  return [
    ['Size', of.size < 1024 ? bytes(of.size) : `${bytes(of.size)}, ${of.size.toLocaleString('en')} bytes`],
    ['Type', of.contentType],
    ['Written', <Moment at={of.writtenAt} />],
    ['By', of.author],
    ['SHA-256', <code>{of.sha256}</code>],
    ['Object', <code>{of.object}</code>],
    ...Object.entries(of.meta).map(([name, value]): Fact => [name, value]),
  ];
}

function contentUrl({ namespace, id, version }: Pick<FileVersion, 'namespace' | 'id' | 'version'>): string {
  return urlOf(`api/v1/files/one/content?${new URLSearchParams({ namespace, id, version: String(version) })}`);
}

interface ActionsProps {
  readonly id: string;
  readonly namespace: string;
  readonly file: FileDetail | undefined;
}

function Actions({ id, namespace, file }: ActionsProps): JSX.Element {
  const { option, given } = inNamespace(namespace);
  const canRemove = file !== undefined && file.live !== null && file.isOpen && can('file:remove');
  return (
    <>
      <CopyAs
        of={{
          CLI: `pawl file history ${shellWord(id)}${option}`,
          curl: curlOf(`files/one?${new URLSearchParams({ namespace, id })}`),
          TypeScript: `await createFiles(engine, store${given}).stat(${JSON.stringify(id)})`,
        }}
      />
      {file?.isOpen === true && file.live !== null && can('file:read') && (
        <a class="button primary" href={contentUrl(file)} download={id.split('/').at(-1)}>
          <Icon name="download" size={14} />
          Download
        </a>
      )}
      {canRemove && (
        <button type="button" class="danger" onClick={() => void remove(namespace, id, file.version)}>
          Remove
        </button>
      )}
    </>
  );
}

async function remove(namespace: string, id: string, version: number): Promise<void> {
  const answer = await confirm({
    title: `Remove ${id}`,
    text: 'No reader finds it any more. Its versions can be restored as long as they are kept.',
    verb: 'Remove it',
    isDanger: true,
    typed: id,
  });
  if (answer === undefined) return;
  await attempt(async () => {
    await send('POST', 'files/remove', { namespace, id, ifVersion: version });
    return `${id} is removed`;
  });
  refresh();
}

interface VersionActionsProps {
  readonly of: FileVersion;
  readonly isOpen: boolean;
  readonly live: number | null;
}

function VersionActions({ of, isOpen, live }: VersionActionsProps): JSX.Element | null {
  const { namespace, id, version, state } = of;
  if (!isOpen || (state !== 'live' && state !== 'retired')) return null;
  const restore = async (): Promise<void> => {
    const answer = await confirm({
      title: `Restore version ${version}`,
      text: `It becomes the next version of ${id}. The version that is live now is kept as an old version.`,
      verb: 'Restore it',
    });
    if (answer === undefined) return;
    await attempt(async () => {
      const body = { namespace, id, version, ifVersion: live ?? 0 };
      const written = await send<FileWritten>('POST', 'files/restore', body);
      return `version ${version} is version ${written.version} now`;
    });
    refresh();
  };
  return (
    <div class="actions">
      {can('file:read') && (
        <a class="button" href={contentUrl(of)} download aria-label={`Download version ${version}`}>
          <Icon name="download" size={14} />
        </a>
      )}
      {version !== live && can('file:write') && (
        <button type="button" aria-label={`Restore version ${version}`} onClick={() => void restore()}>
          <Icon name="undo" size={14} />
          Restore
        </button>
      )}
    </div>
  );
}

function Standings({ of: { holders, waiters, reloads } }: { readonly of: FileDetail }): JSX.Element {
  if (holders.length + waiters.length + reloads.length === 0)
    return <p class="body muted">No process writes it, waits for it, or fetches it for a hot copy.</p>;
  const rows = [
    ...holders.map((one) => ({ ...one, what: 'holds' })),
    ...waiters.map((one) => ({ ...one, what: 'waits' })),
  ];
  return (
    <>
      {rows.length > 0 && (
        <Table<FileStanding & { what: string }>
          caption="Who holds it and who waits"
          rows={rows}
          keyOf={({ pid, what }) => `${what} ${pid}`}
          columns={[
            { title: 'Backend', of: ({ pid, application }) => `${pid} ${application ?? ''}` },
            { title: 'What', of: ({ what, mode }) => <Badge status={what === 'holds' ? mode : 'due'}>{what}</Badge> },
            { title: 'Since', of: ({ since }) => <Time at={since} /> },
            { title: 'Blocked by', of: ({ blockedBy }) => <Maybe of={blockedBy.join(', ')} /> },
          ]}
        />
      )}
      {reloads.length > 0 && (
        <Table caption="Hot copies" rows={reloads} keyOf={({ scope }) => scope} columns={RELOADS} />
      )}
    </>
  );
}
