// One of the processes of the night, as a machine would start it by cron. Tells its parent how far it is.
import { createLocks } from 'pawl/lock';
import { postgres } from 'pawl/postgres';
import { runBilling } from './billing.ts';
import { startReport } from './report.ts';

const engine = postgres(process.env['PAWL_URL'], { max: 3 });
await startReport(engine, createLocks(engine, { namespace: `nightly ${process.env['NIGHT']}` }));
await runBilling(engine, (progress) => process.send?.(progress));
await engine.stop();
process.disconnect();
