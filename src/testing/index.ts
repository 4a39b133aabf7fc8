export { type Stub, stub } from './stub.ts';
export { type Scene, World, type WorldOptions, type WorldReport, world } from './world.ts';
