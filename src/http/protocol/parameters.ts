import { InvalidInput } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { type Fields, readFields, type Values } from './field.ts';

/** The parameters of a query, whatever their names. @throws InvalidInput  one is given twice */
export function readQuery(url: URL): Readonly<Record<string, string>> {
  const query = new Map<string, string>();
  for (const [name, value] of url.searchParams) {
    if (query.has(name)) throw new InvalidInput(`the parameter "${name}" is given twice`, { field: name });
    query.set(name, value);
  }
  return Object.fromEntries(query);
}

/**
 * The bodies of a list, each checked; undefined if the body is no list.
 * @throws InvalidInput  names the body and its field: `2.kind`; or no list may be given
 */
export function readList(
  what: string,
  given: object,
  { list, body = {} }: { readonly list?: { readonly max: number }; readonly body?: Fields },
): Values<Fields>[] | undefined {
  if (!Array.isArray(given)) return undefined;
  if (list === undefined) throw new InvalidInput('the body must be a JSON object');
  if (given.length === 0 || given.length > list.max) {
    throw new InvalidInput(`a list must have 1 to ${list.max} items, but had ${given.length}`, { field: 'length' });
  }
  return given.map((one: unknown, index) => {
    if (!isObject(one)) throw new InvalidInput(`item ${index} must be an object`, { field: String(index) });
    try {
      return readFields(what, one, body, false);
    } catch (cause) {
      if (!(cause instanceof InvalidInput)) throw cause;
      throw new InvalidInput(`item ${index}: ${cause.message}`, { field: `${index}.${cause.field ?? ''}`, cause });
    }
  });
}
