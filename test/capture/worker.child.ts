// A process that projects orders; with a second URL, into a table of that database.
import type { Duration } from '../../src/base/time/duration.ts';
import { createCapture, Sql, sql } from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { build, EXPECTED, TARGET, VIA } from './scene.ts';

const [url = '', toUrl] = process.argv.slice(2);
const engine = postgres(url, { applicationName: 'capture child' });
const capture = createCapture(engine, { entity: 'order', root: 'orders', via: VIA });
const projection = capture.project(
  toUrl === undefined
    ? { ...TARGET, build }
    : {
        ...TARGET,
        into: 'order_copy',
        to: postgres(toUrl),
        build: sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])`,
      },
);
projection.events.on('error', ({ error }) => console.error('error', error));
const worker = projection.run({ poll: '50ms', timeout: (process.env['TIMEOUT'] ?? '30s') as Duration });
await worker.started;
console.log(JSON.stringify({ started: true }));
