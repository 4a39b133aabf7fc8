const TIME = /^at$|At$/;

/** JSON has no times: a field whose name says that it is a time becomes a Date, in the record itself. */
export function readTimes<T extends object>(record: T): T {
  for (const [name, value] of Object.entries(record)) {
    if (typeof value === 'string' && TIME.test(name)) Reflect.set(record, name, new Date(value));
  }
  return record;
}
