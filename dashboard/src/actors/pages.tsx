import type { JSX } from 'preact';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { List, Page } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { filter, query, urlOf } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { Time } from '../text/time.tsx';

/** The pages that actors sent, which a person must handle. */
export function PagesPage(): JSX.Element {
  const status = query.value.get('status') ?? '';
  const asked = `pages${status === '' ? '' : `?status=${status}`}`;
  const pages = useResource<List<Page>>(asked);
  const options = [
    ['', 'Not resolved'],
    ['open', 'Open'],
    ['acked', 'Acknowledged'],
    ['resolved', 'Resolved'],
    ['all', 'All'],
  ] as const;
  return (
    <>
      <Head
        title="Pages"
        about="Requests for a person. Each tag has at most one open page, however often a program asks for it."
        actions={<CopyAs of={elsewhere(status, asked)} />}
      />
      <Card
        title="Pages"
        actions={
          <div class="tabs" role="group" aria-label="Status">
            {options.map(([value, title]) => (
              <button
                key={value}
                type="button"
                aria-pressed={status === value}
                onClick={() => filter({ status: value })}
              >
                {title}
              </button>
            ))}
          </div>
        }
      >
        <Loaded of={pages}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="No page">
                No program asks for a person now. This call asks for one. Each tag has at most one open page:
                <Example>{`await actors.page({ tag: 'disk:web-3', summary: 'The disk is full', severity: 'error' });`}</Example>
              </Empty>
            ) : (
              <Table
                caption="Pages"
                rows={items}
                keyOf={({ id }) => id}
                columns={[
                  { title: 'Page', align: 'right', of: ({ id }) => id },
                  { title: 'Severity', of: ({ severity }) => <Badge status={severity} /> },
                  {
                    title: 'Status',
                    of: (page) => (
                      <Badge status={page.status}>{page.suppressed ? `${page.status}, kept back` : page.status}</Badge>
                    ),
                  },
                  {
                    title: 'Summary',
                    of: ({ summary, tag }) => (
                      <>
                        <strong class="wrap">{summary}</strong>
                        <br />
                        <code class="small muted">{tag}</code>
                      </>
                    ),
                  },
                  {
                    title: 'Actor',
                    of: ({ actor }) =>
                      actor === null ? <span class="muted">–</span> : <a href={`actors/${actor}`}>{actor}</a>,
                  },
                  { title: 'Opened', of: ({ openedAt }) => <Time at={openedAt} /> },
                  { title: 'Times', align: 'right', of: ({ count }) => count },
                  { title: 'Looked at by', of: ({ ackedBy }) => ackedBy ?? <span class="muted">–</span> },
                  { title: 'Action', isAction: true, of: (page) => <Actions of={page} /> },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

function Actions({ of: { id, status } }: { readonly of: Page }): JSX.Element {
  const change = async (verb: string): Promise<void> => {
    await attempt(async () => (await send<{ done: string }>('POST', `pages/${id}/${verb}`)).done);
    refresh();
  };
  return (
    <div class="actions">
      {can('payload:read') && (
        <a class="small" download={`page-${id}.html`} href={urlOf(`api/v1/pages/${id}/html`)}>
          Diagnostics
        </a>
      )}
      {status === 'open' && can('page:ack') && (
        <button type="button" aria-label={`Acknowledge page ${id}`} onClick={() => void change('ack')}>
          Acknowledge
        </button>
      )}
      {status !== 'resolved' && can('page:resolve') && (
        <button type="button" aria-label={`Resolve page ${id}`} onClick={() => void change('resolve')}>
          Resolve
        </button>
      )}
    </div>
  );
}

function elsewhere(status: string, asked: string): Record<string, string> {
  const isAll = status === 'resolved' || status === 'all';
  return {
    CLI: `pawl page list${isAll ? ' --resolved' : ''}`,
    curl: curlOf(asked),
    TypeScript: `await createActorAdmin(engine).pages(${isAll ? '{ resolved: true }' : ''})`,
  };
}
