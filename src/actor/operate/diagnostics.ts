import { escapeHtml } from '../../base/escape-html.ts';
import type { ActorRecord, ActorSummary, ActorTransition, PageRecord } from '../record.ts';
import { svg } from './diagram.ts';
import { explain } from './explain.ts';

/** The data of a diagnostics page. */
export interface Diagnosis {
  readonly page: PageRecord | undefined;
  readonly actor: ActorRecord | undefined;
  readonly history: readonly ActorTransition[];
  readonly children: readonly ActorSummary[];
  readonly at: Date;
}

/** One HTML file that loads nothing: what is wrong, which state the actor is in, how it got there, and what to try. */
export function diagnosticsHtml({ page, actor, history, children, at }: Diagnosis): string {
  const title = page?.summary ?? (actor === undefined ? 'actor' : `${actor.type} ${actor.id}`);
  const parts = [
    `<h1>${escapeHtml(title)}</h1>`,
    page === undefined ? '' : pagePart(page),
    ...(actor === undefined ? [] : actorParts(actor, history, children)),
    `<footer>as of ${at.toISOString()}</footer>`,
  ];
  return `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${POLICY}"><title>${escapeHtml(title)}</title><style>${STYLE}</style></head><body>\n${parts.filter(Boolean).join('\n')}\n</body></html>\n`;
}

/** The file is opened from a disk, where no header of a server protects the reader. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE =
  'body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#223}' +
  'table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #dde;vertical-align:top}' +
  'pre{background:#f4f5f8;padding:.75rem;overflow:auto;white-space:pre-wrap}svg{max-width:100%;height:auto}footer{color:#778;margin-top:2rem}';

function pagePart(page: PageRecord): string {
  return table([
    ['severity', page.severity],
    ['status', page.status],
    ['tag', page.tag],
    ['opened', page.openedAt.toISOString()],
    ['last seen', `${page.seenAt.toISOString()} (${page.count} times)`],
    [
      'acknowledged',
      page.ackedAt === null
        ? 'no'
        : `${page.ackedAt.toISOString()}${page.ackedBy === null ? '' : ` by ${page.ackedBy}`}`,
    ],
    ['resolved', page.resolvedAt?.toISOString() ?? 'no'],
    ...(page.details === null ? [] : [['details', json(page.details)] as const]),
  ]);
}

function actorParts(
  actor: ActorRecord,
  history: readonly ActorTransition[],
  children: readonly ActorSummary[],
): string[] {
  const { reasons, advice } = explain(actor);
  return [
    `<h2>${escapeHtml(actor.type)} ${escapeHtml(actor.id)} is ${escapeHtml(actor.status)} in “${escapeHtml(actor.state)}”</h2>`,
    list(reasons),
    '<h3>What to try</h3>',
    list([...advice, ...tries(actor)]),
    '<h3>Machine</h3>',
    svg(actor.machine, { current: actor.state }),
    '<h3>Fields</h3>',
    `<pre>${escapeHtml(json(actor.fields))}</pre>`,
    '<h3>Semaphores</h3>',
    table(Object.entries(actor.semaphores).map(([name, n]) => [name, String(n)])),
    ...(actor.error === null ? [] : ['<h3>Last error</h3>', `<pre>${escapeHtml(actor.error)}</pre>`]),
    '<h3>Children</h3>',
    table(children.map(({ id, type, state, status }) => [`${type} ${id}`, `${state}, ${status}`])),
    '<h3>History</h3>',
    table(
      history
        .toReversed()
        .map(({ at, from, to, reason, error }) => [
          at.toISOString(),
          `${from === null ? '' : `${from} → `}${to}: ${reason}${error === null ? '' : `: ${error.replace(/\n[^]*/, '')}`}`,
        ]),
    ),
  ];
}

function tries({ id, status, attempt }: ActorRecord): string[] {
  return [
    `pawl actor explain ${id} says why it does not run; pawl actor history ${id} shows how it came to this state`,
    ...(attempt > 0 || status === 'paused'
      ? [`pawl actor work ${id} runs one turn now, by hand, and shows its outcome`]
      : []),
    ...(status === 'final' ? [] : [`pawl actor pause ${id} pauses it while you investigate`]),
  ];
}

function table(rows: readonly (readonly [string, string])[]): string {
  if (rows.length === 0) return '<p>none</p>';
  return `<table>${rows.map(([name, value]) => `<tr><th>${escapeHtml(name)}</th><td>${escapeHtml(value)}</td></tr>`).join('')}</table>`;
}

function list(lines: readonly string[]): string {
  return lines.length === 0
    ? '<p>nothing prevents its next turn</p>'
    : `<ul>${lines.map((line) => `<li>${escapeHtml(line)}</li>`).join('')}</ul>`;
}

function json(value: unknown): string {
  return JSON.stringify(value, null, 2);
}
