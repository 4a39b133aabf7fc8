/** The fields of a row that decides: texts and numbers by name. */
export type Fields = Readonly<Record<string, string | number>>;

/**
 * One conditional write of a row, as data: the model and the requests are made from the same changes. A change is carried out if
 * every field has the value in `expect`; null means that the field is missing.
 */
export interface Change {
  /** True: only if the row exists. */
  readonly isThere?: true | undefined;
  readonly expect: Readonly<Record<string, string | number | null>>;
  readonly set: Readonly<Record<string, string | number | null>>;
  /** Counters to raise by these numbers, from zero or from the present value. */
  readonly add?: Readonly<Record<string, number>> | undefined;
}

/** @returns the row after the change; undefined if the condition does not hold */
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

/** Whether all fields that the change sets have their new values: an earlier try was then carried out. */
export function isApplied(fields: Fields, { set }: Change): boolean {
  return Object.entries(set).every(([name, value]) => (fields[name] ?? null) === value);
}

/** Combines two changes of one row, of different fields. */
export function both(one: Change, other: Change): Change {
  return {
    expect: { ...one.expect, ...other.expect },
    set: { ...one.set, ...other.set },
    add: { ...one.add, ...other.add },
  };
}
