const TIME = /^at$|At$/;

/** JSON has no times: what its name says is one becomes a Date, in the record itself. */
export function readTimes<T extends object>(record: T): T {
  for (const [name, value] of Object.entries(record)) {
    if (typeof value === 'string' && TIME.test(name)) Reflect.set(record, name, new Date(value));
  }
  return record;
}
