// The consumers of the shop's changes: two projections, a copy, a follower.
import { postgres } from '../../../src/engine/postgres/index.ts';
import { ready, url } from '../member/member-side.ts';
import { declare } from './declaration.ts';

const { COPY_URL = '', BATCH = '50', CONCURRENCY = '2', TIMEOUT = '3000' } = process.env;
const logger = { debug() {}, info() {}, warn() {}, error() {} };
const engine = postgres(url, { max: 12, logger });
const to = postgres(COPY_URL, { max: 6, logger });
const { projections, follower } = declare(engine, to);

const settings = { batch: Number(BATCH), concurrency: Number(CONCURRENCY), timeout: Number(TIMEOUT), poll: 100 };
const workers = [
  ...projections.map((projection) => projection.run({ ...settings, backoff: { min: '200ms', max: '1s' } })),
  follower.run({ batch: Math.min(settings.batch, 7), timeout: settings.timeout, poll: 100 }),
];
ready(async () => {
  await Promise.all(workers.map((worker) => worker.stop()));
  await Promise.all([engine.stop(), to.stop()]);
});
