export {
  TestQueue,
  type TestQueueOptions,
  testQueue,
  type WaitForJobOptions,
} from './queue/test-queue.ts';
export { type NotedProgress, TestUnit, type TestUnitFacts, type TestUnitOptions, testUnit } from './queue/test-unit.ts';
export {
  type FaultOptions,
  FaultyStore,
  type FaultyStoreOptions,
  faultyStore,
  type StoreFault,
} from './s3/faulty-store.ts';
export type { S3Object } from './s3/objects.ts';
export { type Stub, stub } from './stub.ts';
export { type Scene, World, type WorldOptions, type WorldReport, world } from './world.ts';
