import {
  digits,
  list,
  listed,
  map,
  number,
  object,
  one,
  orNull,
  ref,
  type Schemas,
  text,
  time,
  whole,
  yes,
} from './parts.ts';

const capture = { entity: text, root: text, tables: list(text), consumers: list(ref('Consumer')) };

const values = orNull(map(orNull(text)));

/** Captures, their consumers, and the changes that they keep. */
export const CAPTURES: Schemas = {
  CaptureList: object({
    items: list(ref('Capture')),
    missing: list(text),
    culprits: list(
      object({
        pid: orNull(whole),
        database: orNull(text),
        user: orNull(text),
        application: orNull(text),
        state: text,
        ageMs: number,
        holdsKeys: yes,
      }),
    ),
  }),
  Capture: object(capture),
  Consumer: object({
    entity: text,
    name: text,
    guarantee: one('latest', 'ordered'),
    outstanding: whole,
    oldestMs: orNull(number),
    failing: whole,
    error: orNull(text),
    sweepDone: orNull(whole),
    sweepTotal: orNull(whole),
  }),
  Difference: object({ kind: text, object: text, problem: text }),
  CaptureDetail: object({ ...capture, differences: list(ref('Difference')), isDeclared: yes }),
  CapturePlan: object({ by: one('installed', 'declared'), sql: text, differences: list(ref('Difference')) }),
  CaptureApplied: object({ mended: list(ref('Difference')) }),
  CaptureVerified: object({ isWhole: yes, differences: list(ref('Difference')) }),
  CaptureReplayed: object({ begun: list(text), consumers: list(ref('Consumer')) }),
  CaptureReconciled: object({
    items: list(object({ name: text, checked: whole, drifted: whole, keys: list(text) })),
  }),
  CaptureDetached: object({ entity: text, detached: yes }),
  Change: object({
    id: digits,
    at: time,
    table: text,
    op: one('insert', 'update', 'delete', 'truncate'),
    key: orNull(text),
    oldKey: orNull(text),
    before: values,
    after: values,
    actor: orNull(text),
    reason: orNull(text),
    dbUser: text,
  }),
  ChangeList: listed(ref('Change')),
};
