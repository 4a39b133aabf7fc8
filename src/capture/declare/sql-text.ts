import { InvalidInput } from '../../base/errors.ts';

/** A piece of SQL that `` sql`…` `` made. It is no string, so that no value becomes SQL by mistake. */
export class Sql {
  readonly text: string;

  /** @internal */
  constructor(text: string) {
    this.text = text;
  }
}

/**
 * Marks text as SQL: `` sql`select o.id from orders o join changed c on c.id = o.customer_id` ``. Only other pieces of SQL can
 * be put in.
 * @throws InvalidInput for any other value in `${}`
 */
export function sql(parts: TemplateStringsArray, ...values: readonly Sql[]): Sql {
  let text = parts[0] ?? '';
  values.forEach((value, index) => {
    if (!(value instanceof Sql)) {
      throw new InvalidInput('sql`…` takes only other sql`…` in ${}; write the value itself into the text', {
        field: 'sql',
      });
    }
    text += value.text + (parts[index + 1] ?? '');
  });
  return new Sql(text.trim());
}

/** A text constant for a statement that cannot have parameters, such as the definition of a function. */
export function literal(text: string): string {
  const plain = `'${text.replaceAll("'", "''")}'`;
  // An E'' literal means the same under every setting of standard_conforming_strings.
  return text.includes('\\') ? `e${plain.replaceAll('\\', '\\\\')}` : plain;
}
