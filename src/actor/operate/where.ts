import { InvalidInput } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { asFields, unknownName } from '../option-checks.ts';

/** @throws InvalidInput  fields without the type that declares them */
export function requireType(type: string | undefined): string {
  if (type !== undefined) return type;
  throw new InvalidInput('list({ where }) needs the type that declares these fields: list({ type, where })', {
    field: 'type',
  });
}

/** @throws InvalidInput  a field that the type does not declare in `index`, or a value that an index cannot have */
export function requireIndexed(type: string, where: object, indexes: readonly string[]): void {
  for (const [name, value] of Object.entries(asFields(where))) {
    if (!indexes.includes(name)) throw unknownName(`field in the index of ${type}`, name, indexes, `where.${name}`);
    if (!['string', 'number', 'boolean'].includes(typeof value)) {
      throw new InvalidInput(`where.${name} must be a text, a number, true or false, but was ${show(value)}`, {
        field: `where.${name}`,
      });
    }
  }
}
