import { beforeAll, expect, test } from 'vitest';
import { type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { warmPawl } from '../warm-pawl.ts';

let local: SharedDynamo;

beforeAll(async () => {
  local = await sharedDynamo();
});

test('status is 1 without the table and 0 after migrate, which is safe to repeat', async () => {
  const at = ['--dynamodb', 'locks', '--endpoint', local.endpoint];
  const before = await warmPawl(['migrate', 'status', ...at, '-o', 'json']);
  expect(before).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/next:.*pawl migrate --dynamodb locks --endpoint http/),
  });
  expect(JSON.parse(before.stdout)).toEqual({ table: 'locks', state: 'behind' });
  const made = await warmPawl(['migrate', ...at, '-o', 'json']);
  expect(made.code).toBe(0);
  expect(JSON.parse(made.stdout)).toEqual({ table: 'locks', created: true });
  const again = await warmPawl(['migrate', 'up', ...at]);
  expect(again).toMatchObject({ code: 0, stderr: expect.stringContaining('up to date') });
  expect((await warmPawl(['migrate', 'status', ...at])).code).toBe(0);
});

test('plan and --dry-run print templates, and ask no service', async () => {
  const planned = await warmPawl(['migrate', 'plan', '--dynamodb', '--template', 'terraform']);
  expect(JSON.parse(planned.stdout)).toMatchObject({
    resource: { aws_dynamodb_table: { pawl: { name: 'pawl', hash_key: 'pk', range_key: 'sk' } } },
  });
  const dry = await warmPawl(['migrate', '--dynamodb', 'locks', '--dry-run', '--endpoint', 'http://127.0.0.1:1']);
  expect(dry.code).toBe(0);
  expect(JSON.parse(dry.stdout)).toMatchObject({
    Resources: { PawlTable: { Properties: { TableName: 'locks', BillingMode: 'PAY_PER_REQUEST' } } },
  });
});

test('what cannot be reached is 3, a bad name of a table 2', async () => {
  const args = ['migrate', '--dynamodb', '--endpoint', 'http://127.0.0.1:1', '--timeout', '20s'];
  const advice = expect.stringMatching(/could not be sent.*\nnext: {2}start what listens at http:\/\/127/s);
  expect(await warmPawl(args)).toMatchObject({ code: 3, stdout: '', stderr: advice });
  expect(await warmPawl(['migrate', '--dynamodb', 'a b', '--endpoint', local.endpoint])).toMatchObject({ code: 2 });
});
