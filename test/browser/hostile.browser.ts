import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { actor, createActors, state } from '../../src/actor/index.ts';
import { createFiles, disk, type Files } from '../../src/files/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { until } from '../support/eventually.ts';
import { makeStage, type Stage } from './stage.ts';

// Names and values that would be scripts if anything took them for markup. They stand wherever a program can put a text.
const HOSTILE = [
  '<script>window.pwned=1</script>',
  '<img src=x onerror="window.pwned=1">',
  '"><svg onload=window.pwned=1>',
  "' autofocus onfocus=window.pwned=1 x='",
  'javascript:window.pwned=1//',
  '</title><script>window.pwned=1</script>',
  '{{constructor.constructor("window.pwned=1")()}}',
  '<a href="javascript:window.pwned=1">x</a>',
] as const;

let stage: Stage;
let base: string;
/** The pages that are about each text. */
const paths = new Map<string, readonly string[]>();
const closers: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  stage = await makeStage();
  const files = await openFiles();
  const links = [{ title: HOSTILE[1], of: 'job' as const, url: 'https://logs.example.org/?q={key}' }];
  base = await stage.open({ files, links, title: HOSTILE[0] });
  for (const text of HOSTILE) paths.set(text, await plant(text, files));
});
afterAll(async () => {
  for (const close of closers.reverse()) await close();
  await stage?.stop();
});

async function openFiles(): Promise<Files> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-hostile-'));
  closers.push(() => rm(folder, { recursive: true, force: true }));
  return createFiles(stage.engine, { content: disk(folder) });
}

/** Says its key when it fails. */
const Hostile = actor('hostile', {
  initial: 'trying',
  states: {
    trying: state({
      to: [],
      run: async (a) => {
        throw new Error(String(a.fields['text']));
      },
    }),
  },
});

/** Puts the text everywhere. @returns the pages that are about it */
async function plant(text: string, files: Files): Promise<string[]> {
  const queue = createQueue(stage.engine, text, { kinds: { [text]: { attempts: 1 } } });
  const payload = { [text]: text, list: [text], url: 'javascript:window.pwned=1' };
  const { id: failed } = await queue.enqueue(text, payload, { key: text });
  const worker = queue.work({
    [text]: async () => {
      throw new Error(text);
    },
  });
  await queue.drain();
  await worker.stop();
  const { id: waiting } = await queue.enqueue(text, payload, { key: text });
  const { id: cancelled } = await queue.enqueue(text, payload, { key: text });
  await queue.cancel(cancelled, { reason: text });
  await queue.schedule(text, { cron: '0 3 * * *', kind: text, payload });
  const locks = createLocks(stage.engine, { namespace: text });
  closers.push(() => locks.stop());
  await locks.acquire(text, { lease: '10m' });
  void locks.acquire(text, { wait: '10m' }).catch(() => {});
  await until('somebody waits', async () => (await locks.query()).waiting.length === 1);
  const actors = createActors(stage.engine, [Hostile]);
  const { id: failing } = await actors.create(Hostile, { text, ...payload }, { key: text });
  await actors.work(failing);
  await actors.page({ tag: text, summary: text, severity: 'error', details: payload });
  await files.write(text, text, { author: text, meta: { note: text } });
  const of = encodeURIComponent(text);
  const jobs = [failed, waiting, cancelled].map((id) => `jobs/${id}`);
  const one = `locks/one?namespace=${of}&name=${of}`;
  const lists = [`jobs?q=${of}`, `jobs?queue=${of}`, `history?q=${of}`, `history?of=${of}`, `locks?name=${of}`];
  return [
    `actors/${failing}`,
    `queues/${of}`,
    `queues?q=${of}`,
    `files/one?id=${of}`,
    one,
    `q/${of}`,
    `l/${of}`,
    ...jobs,
    ...lists,
  ];
}

/** What of a page would have come out of a text. */
function injected(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const found = Reflect.get(globalThis, 'pwned') === undefined ? [] : ['a script ran'];
    for (const element of document.querySelectorAll(
      'body :is(script, base, iframe, object, embed, [autofocus]), img:not([src="icon.svg"])',
    ))
      found.push(element.outerHTML.slice(0, 200));
    for (const element of document.querySelectorAll('*'))
      for (const { name, value } of element.attributes)
        if (/^on/i.test(name) || (/^(href|src|action|formaction)$/.test(name) && /^\s*javascript:/i.test(value)))
          found.push(`${name}=${value}`);
    return found;
  });
}

const LISTS = [
  '',
  'queues',
  'jobs',
  'errors',
  'locks',
  'pages?status=all',
  'files',
  'history',
  'schedules',
  'bulk',
  'workers',
  'admin',
  'actors',
];

test.each([...HOSTILE, 'lists'])('becomes a part of no page: %s', async (text) => {
  const { page, context, complaints } = await stage.visit(base);
  for (const path of paths.get(text) ?? LISTS) {
    await page.goto(new URL(path, base).href);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.waitForFunction(() => document.querySelector('.skeleton') === null);
    await page.evaluate(() => {
      for (const closed of document.querySelectorAll('details')) closed.open = true;
    });
    expect([path, await injected(page)]).toEqual([path, []]);
  }
  // A policy that has to hold something back says so here; a search that is none is refused, and so are ids.
  expect(complaints.filter((one) => !/\b40[04]\b/.test(one))).toEqual([]);
  await context.close();
});

test.each(HOSTILE.filter((text) => text.includes('<')))('would be found if it did: %s', async (text) => {
  const { page, context } = await stage.visit(base);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.evaluate((html) => document.querySelector('main')?.insertAdjacentHTML('beforeend', html), text);
  expect((await injected(page)).length).toBeGreaterThan(0);
  await context.close();
});
