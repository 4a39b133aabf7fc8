// A process that keeps the search table as the orders are.
import { postgres } from 'pawl/postgres';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { declareOrders } from './orders.ts';

const engine = postgres(process.env['DATABASE_URL'], { applicationName: 'orders worker', max: 4 });
const { projection } = declareOrders(engine);
const worker = projection.run();
await worker.started;
stopWhenTold(async () => {
  await worker.stop();
  await engine.stop();
});
tellParent({ ready: true });
