import { InvalidInput } from '../base/errors.ts';

/** JSON of a value; undefined is null. @throws InvalidInput */
export function toJson(value: unknown, what: string): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch (cause) {
    throw new InvalidInput(`${what} cannot be written as JSON: ${String(cause)}`, { cause });
  }
}
