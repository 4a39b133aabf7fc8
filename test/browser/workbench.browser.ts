import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createQueue } from '../../src/queue/index.ts';
import { until } from '../support/eventually.ts';
import { makeStage, type Stage } from './stage.ts';

// What people do all day: find jobs, see how many it is about, change them, go through lists without a mouse.
let stage: Stage;
let base: string;
const failed: string[] = [];
const closers: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  stage = await makeStage();
  base = await stage.open();
  for (let n = 0; n < 120; n += 1) {
    const name = `queue-${String(n).padStart(3, '0')}`;
    await createQueue(stage.engine, name, { kinds: { send: {} } }).register();
  }
  const mail = createQueue(stage.engine, 'mail', { kinds: { send: { attempts: 1 }, other: {} } });
  for (let n = 0; n < 6; n += 1) failed.push((await mail.enqueue('send', { n, long: '#' })).id);
  const worker = mail.work({
    send: ({ payload }) => {
      throw new Error(`no such mailbox: ${JSON.stringify(payload)}`);
    },
    other: () => {},
  });
  await mail.drain();
  await worker.stop();
});
afterAll(async () => {
  for (const close of closers) await close();
  await stage?.stop();
});

async function statusOf(id: string): Promise<string> {
  return (await createQueue(stage.engine, 'mail', { kinds: { send: {} } }).get(id)).status;
}

async function rows(page: Page, caption: string): Promise<string[]> {
  const cells = page.getByRole('table', { name: caption }).locator('tbody tr td:first-child');
  return (await cells.allInnerTexts()).map((text) => text.trim());
}

describe('many jobs at once', () => {
  test('rows are selected by a click, with shift from there to here, and no others are changed', async () => {
    const { page, context } = await stage.visit(new URL('jobs?q=status:error', base).href);
    const [, second = '', third = '', fourth = ''] = [...failed].reverse();
    await page.getByRole('checkbox', { name: `Select ${second}` }).click();
    await page.getByRole('checkbox', { name: `Select ${fourth}` }).click({ modifiers: ['Shift'] });
    await page.getByText('3 jobs selected:').waitFor();
    await page.getByRole('button', { name: 'Retry selected…' }).click();
    await page.getByRole('button', { name: 'Retry 3 jobs' }).click();
    await page.getByText(/^3 done, 0 refused, of 3$/).waitFor();
    expect(await Promise.all([second, third, fourth].map(statusOf))).toEqual(['new', 'new', 'new']);
    expect(await statusOf(failed[0] ?? '')).toBe('error');
    await context.close();
  });

  test('before all that fit are changed it is said how many that are; where it can be done with none, nothing begins', async () => {
    const { page, context } = await stage.visit(new URL('jobs?q=status:error', base).href);
    await page.getByRole('button', { name: 'Cancel all…' }).click();
    await page.getByText(/none can be cancelled/).waitFor();
    expect(await page.getByRole('button', { name: 'Cancel none' }).isDisabled()).toBe(true);
    await page.keyboard.press('Escape');
    await page.goto(new URL('jobs?q=key:nobody', base).href);
    await page.getByText('No job fits').waitFor();
    expect(await page.getByRole('button', { name: /all…$/ }).count()).toBe(0);
    await context.close();
  });

  test('a hundred or more are changed only once their number was typed', async () => {
    const mail = createQueue(stage.engine, 'mail', { kinds: { send: {}, other: {} } });
    await mail.enqueueMany(Array.from({ length: 101 }, () => ({ kind: 'other' as const, payload: null })));
    const { page, context } = await stage.visit(new URL('jobs?q=kind:other', base).href);
    await page.getByRole('button', { name: 'Cancel all…' }).click();
    const sure = page.getByRole('button', { name: 'Cancel 101 jobs' });
    await sure.waitFor();
    expect(await sure.isDisabled()).toBe(true);
    await page.getByLabel(/Type 101/).fill('101');
    await sure.click();
    await page.getByText(/^101 done, 0 refused, of 101$/).waitFor();
    await context.close();
  });
});

test('a job is done once more with another payload, and each of the two names the other', async () => {
  const [id = ''] = failed;
  const { page, context } = await stage.visit(new URL(`jobs/${id}`, base).href);
  await page.getByRole('button', { name: 'Edit and retry' }).click();
  const payload = page.getByRole('dialog').getByLabel('Payload, as JSON');
  await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('long'));
  await payload.fill('{"n": }');
  await page.getByRole('button', { name: 'Retry with this' }).click();
  await page.getByRole('dialog').getByRole('alert').waitFor();
  await payload.fill('{"n": 12345678901234567890123}');
  await page.getByRole('button', { name: 'Retry with this' }).click();
  await page.getByRole('link', { name: `job ${id}, with another payload` }).waitFor();
  await page.getByText('12345678901234567890123').waitFor();
  const again = /\d+$/.exec(new URL(page.url()).pathname)?.[0] ?? '';
  await page.getByRole('link', { name: `job ${id}, with another payload` }).click();
  await page.getByRole('link', { name: `Job ${again}` }).waitFor();
  await context.close();
});

test('a job that waits gets another payload, is made due, and is completed by hand', async () => {
  const mail = createQueue(stage.engine, 'mail', { kinds: { send: {}, other: {} } });
  const { id } = await mail.enqueue('other', { n: 1 }, { delay: '1h' });
  const { page, context } = await stage.visit(new URL(`jobs/${id}`, base).href);
  await page.getByRole('button', { name: 'Edit the payload' }).click();
  await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('n'));
  await page.getByRole('dialog').getByLabel('Payload, as JSON').fill('{"n": 12345678901234567890123}');
  await page.getByRole('button', { name: 'Change it' }).click();
  await page.getByText(`job ${id} has another payload`).waitFor();
  await page.getByRole('button', { name: 'Run now' }).click();
  await page.getByText(`job ${id} is now new`).waitFor();
  await page.getByRole('button', { name: 'Run now' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Complete by hand' }).click();
  await page.getByRole('button', { name: 'Complete it' }).click();
  await page.getByText(`job ${id} is now complete`).waitFor();
  await context.close();
});

test('a dead worker is released, and a key goes on past the job that blocks it', async () => {
  const stops = createQueue(stage.engine, 'stops', { kinds: { job: { attempts: 2 } }, keyOnError: 'block' });
  const { id } = await stops.enqueue('job', 1, { key: 'k' });
  await stops.claim({ lease: '1h' });
  const { page, context } = await stage.visit(new URL('workers', base).href);
  await page
    .getByRole('row', { name: /stops/ })
    .getByRole('button', { name: /^Release the jobs of/ })
    .click();
  await page.getByRole('button', { name: 'Release them' }).click();
  await page.getByText('1 job given back').waitFor();
  const [unit] = await stops.claim();
  await unit?.fail(new Error('no money'));
  await page.goto(new URL(`jobs/${id}`, base).href);
  await page.getByRole('button', { name: 'Skip', exact: true }).click();
  await page.getByText(`job ${id} is now error`).waitFor();
  await page.getByRole('button', { name: 'Skip', exact: true }).waitFor({ state: 'detached' });
  await context.close();
});

test('jobs that say the same in error are one row, which leads to them', async () => {
  const { page, context } = await stage.visit(new URL('errors', base).href);
  await page
    .getByRole('table', { name: 'Errors' })
    .getByRole('link', { name: /no such mailbox/ })
    .click();
  await page.waitForURL(/jobs\?q=status/);
  await page
    .getByRole('table', { name: 'Jobs' })
    .getByRole('link', { name: failed.at(-1) ?? '' })
    .waitFor();
  await context.close();
});

describe('queues', () => {
  test('are found by a part of the name, ordered by a column, and had page by page, as the address says', async () => {
    const { page, context } = await stage.visit(new URL('queues', base).href);
    // Those of other tests of this file, too.
    await page.getByText(/^12\d queues$/).waitFor();
    expect((await rows(page, 'Queues')).length).toBe(50);
    await page.getByRole('button', { name: 'Show more' }).click();
    await until('there are more', async () => (await rows(page, 'Queues')).length === 100);
    await page.getByRole('button', { name: 'Error', exact: true }).click();
    await page.waitForURL(/sort=error/);
    await until('mail is first', async () => (await rows(page, 'Queues'))[0]?.startsWith('mail') === true);
    expect(await page.getByRole('columnheader', { name: 'Error', exact: true }).getAttribute('aria-sort')).toBe(
      'descending',
    );
    await page.getByLabel('Part of the name').fill('-01');
    await until('they are ten', async () => (await rows(page, 'Queues')).length === 10);
    await page.reload();
    await until('they are ten again', async () => (await rows(page, 'Queues')).length === 10);
    await context.close();
  });
});

describe('without a mouse', () => {
  test('a list is gone through, rows are selected and opened', async () => {
    const { page, context } = await stage.visit(new URL('jobs?q=kind:send', base).href);
    await page.getByRole('table', { name: 'Jobs' }).waitFor();
    const [newest = '', next = ''] = await page
      .getByRole('table', { name: 'Jobs' })
      .locator('td .mono')
      .allInnerTexts();
    for (const key of ['j', 'x', 'j', 'j', 'x', 'k']) await page.keyboard.press(key);
    await page.getByText('2 jobs selected:').waitFor();
    expect(await page.getByRole('checkbox', { name: `Select ${newest}` }).isChecked()).toBe(true);
    expect(await page.getByRole('checkbox', { name: `Select ${next}` }).isChecked()).toBe(false);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: `Job ${next}` }).waitFor();
    await context.close();
  });

  test('pages, queues, ids and actions are found by their names', async () => {
    const { page, context } = await stage.visit(base);
    const command = async (typed: string, title: string): Promise<void> => {
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Command' }).fill(typed);
      await page.getByRole('option', { name: new RegExp(`^${title}`) }).waitFor();
      await page.keyboard.press('Enter');
    };
    await page.getByText('Needs attention').waitFor();
    await command('queue-017', 'queue-017 queue');
    await page.getByRole('heading', { name: 'queue-017', level: 1 }).waitFor();
    await command('pause queue-017', 'Pause queue-017');
    await page.getByRole('button', { name: 'Resume queue-017' }).waitFor();
    await command(failed[0] ?? '', `Job ${failed[0]}`);
    await page.getByRole('heading', { name: `Job ${failed[0]}` }).waitFor();
    await command('schd', 'schedules');
    await page.getByRole('heading', { name: 'Schedules', level: 1 }).waitFor();
    await context.close();
  });
});

test('what each kind did, and how often it failed, is shown over a span that stands in the address', async () => {
  const { page, context } = await stage.visit(new URL('queues/mail', base).href);
  const card = page.getByRole('region', { name: 'By kind' });
  await card.getByRole('button', { name: '24h' }).click();
  await page.waitForURL(/span=24h/);
  const row = card.getByRole('row').filter({ hasText: 'send' });
  await row.waitFor();
  const errors = row.locator('td[data-title="Errors"] a');
  expect(Number(await errors.innerText())).toBeGreaterThan(0);
  await errors.click();
  await page.waitForURL((url) => url.searchParams.get('q') === 'status:error kind:"send"');
  await context.close();
});

test('a job leads to where its logs are, and has no link where a value for it is missing', async () => {
  const links = [
    { title: 'Logs', of: 'job' as const, url: 'https://logs.example.org/?q={queue}+{id}' },
    { title: 'Trace', of: 'job' as const, url: 'https://traces.example.org/{trace}' },
  ];
  const { page, context } = await stage.visit(new URL(`jobs/${failed[0]}`, await stage.open({ links })).href);
  const logs = page.getByRole('link', { name: 'Logs' });
  await logs.waitFor();
  expect(await logs.getAttribute('href')).toBe(`https://logs.example.org/?q=mail+${failed[0]}`);
  expect(await page.getByRole('link', { name: 'Trace' }).count()).toBe(0);
  await context.close();
});
