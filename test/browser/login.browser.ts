import { afterAll, beforeAll, expect, test } from 'vitest';
import { hashPassword } from '../../src/http/index.ts';
import { makeStage, type Stage, TOKEN } from './stage.ts';

// Whatever the server takes, a browser can show.
let stage: Stage;
beforeAll(async () => {
  stage = await makeStage();
});
afterAll(() => stage?.stop());

const NOBODY = { extraHTTPHeaders: {} };

test('where there are tokens alone, one is asked for, and becomes a cookie', async () => {
  const base = await stage.open();
  const { page, context, complaints } = await stage.visit(new URL('locks', base).href, NOBODY);
  await page.getByLabel('Token').fill('this is no token of anybody');
  expect(await page.getByLabel('Password').count()).toBe(0);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Token').fill(`${TOKEN}\n`);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('heading', { name: 'Locks', level: 1 }).waitFor();
  await page.reload();
  await page.getByRole('heading', { name: 'Locks', level: 1 }).waitFor();
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  expect(complaints.filter((one) => !/401/.test(one))).toEqual([]);
  await context.close();
});

test('where there are both, the password comes first, and a token is taken, too', async () => {
  const users = [{ name: 'ada', password: await hashPassword('correct horse battery'), role: 'operator' as const }];
  const tokens = [{ name: 'ops', token: TOKEN, role: 'admin' as const }];
  const base = await stage.open({ auth: { users, tokens } });
  const { page, context } = await stage.visit(base, NOBODY);
  await page.getByLabel('Password').waitFor();
  await page.getByText('With a token instead').click();
  await page.getByLabel('Token').fill(TOKEN);
  await page.getByRole('button', { name: 'Log in' }).last().click();
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
  await context.close();
});

test('a login that ends elsewhere brings the page back to log in, by itself', async () => {
  const base = await stage.open();
  const { page, context } = await stage.visit(base, NOBODY);
  await page.getByLabel('Token').fill(TOKEN);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('Needs attention').waitFor();
  const elsewhere = await context.newPage();
  await elsewhere.goto(new URL('admin', base).href);
  await elsewhere.evaluate(() => fetch('api/v1/logout', { method: 'POST' }));
  await page.getByLabel('Token').waitFor();
  await context.close();
});
