/** The fields of a row that decides: texts and numbers by name. */
export type Fields = Readonly<Record<string, string | number>>;

/**
 * One conditional write of a row, as data: the model and the requests are made of the same ones. A change is carried out if every
 * field of `expect` is what it says; null stands for a field that is not there.
 */
export interface Change {
  /** Only a row that is there. */
  readonly isThere?: true | undefined;
  readonly expect: Readonly<Record<string, string | number | null>>;
  readonly set: Readonly<Record<string, string | number | null>>;
  /** Counters that are raised by so much, from nothing or from what is there. */
  readonly add?: Readonly<Record<string, number>> | undefined;
}

/** @returns the row after the change; undefined when the condition does not hold */
export function applied(fields: Fields, { isThere, expect, set, add = {} }: Change): Fields | undefined {
  if (isThere === true && Object.keys(fields).length === 0) return undefined;
  for (const [name, value] of Object.entries(expect)) if ((fields[name] ?? null) !== value) return undefined;
  const after: Record<string, string | number> = { ...fields };
  for (const [name, value] of Object.entries(set)) {
    if (value === null) delete after[name];
    else after[name] = value;
  }
  for (const [name, by] of Object.entries(add)) after[name] = Number(after[name] ?? 0) + by;
  return after;
}

/** Whether the row is as this change would leave it, in all that the change sets: an earlier try was carried out. */
export function isApplied(fields: Fields, { set }: Change): boolean {
  return Object.entries(set).every(([name, value]) => (fields[name] ?? null) === value);
}

/** Two changes of one row, of different fields, as one. */
export function both(one: Change, other: Change): Change {
  return {
    expect: { ...one.expect, ...other.expect },
    set: { ...one.set, ...other.set },
    add: { ...one.add, ...other.add },
  };
}
