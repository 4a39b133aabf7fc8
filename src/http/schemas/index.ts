import { ERROR_SCHEMA } from '../protocol/failure.ts';
import { ACTORS } from './actors.ts';
import { CAPTURES } from './captures.ts';
import { FILES } from './files.ts';
import { JOBS } from './jobs.ts';
import { LOCKS } from './locks.ts';
import { OPERATE } from './operate.ts';
import type { Schemas } from './parts.ts';
import { QUEUES } from './queues.ts';

/** The answers of the routes, by name. The dashboard's types are made from these: `node scripts/dashboard-types.mjs`. */
export const SCHEMAS: Schemas = {
  Error: ERROR_SCHEMA,
  ...QUEUES,
  ...JOBS,
  ...LOCKS,
  ...ACTORS,
  ...CAPTURES,
  ...FILES,
  ...OPERATE,
};
