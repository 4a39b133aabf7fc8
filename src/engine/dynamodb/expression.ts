import type { Attribute } from './client.ts';

/** The texts of one request, and what its placeholders stand for. */
export interface Written {
  readonly UpdateExpression?: string;
  readonly ConditionExpression?: string;
  readonly ExpressionAttributeNames?: Record<string, string>;
  readonly ExpressionAttributeValues?: Record<string, Attribute>;
}

/**
 * Puts the parts of a request together. Names and values only ever go in by placeholders: an attribute may be called what it
 * likes, and no value is read as text.
 */
export class Expression {
  readonly #names = new Map<string, string>();
  readonly #values: Record<string, Attribute> = {};
  readonly #set: string[] = [];
  readonly #removed: string[] = [];
  readonly #conditions: string[] = [];
  #count = 0;

  /** The placeholder of an attribute. */
  name(attribute: string): string {
    const known = this.#names.get(attribute);
    if (known !== undefined) return known;
    const place = `#${this.#names.size}`;
    this.#names.set(attribute, place);
    return place;
  }

  /** The placeholder of a value. */
  value(value: Attribute): string {
    const place = `:${this.#count++}`;
    this.#values[place] = value;
    return place;
  }

  set(attribute: string, value: Attribute): this {
    return this.setTo(attribute, this.value(value));
  }

  /** To what an expression gives: `if_not_exists(#0, :0) + :1`. */
  setTo(attribute: string, expression: string): this {
    this.#set.push(`${this.name(attribute)} = ${expression}`);
    return this;
  }

  remove(attribute: string): this {
    this.#removed.push(this.name(attribute));
    return this;
  }

  /** All of them have to hold. */
  when(condition: string): this {
    this.#conditions.push(condition);
    return this;
  }

  whenIs(attribute: string, value: Attribute): this {
    return this.when(`${this.name(attribute)} = ${this.value(value)}`);
  }

  whenAbsent(attribute: string): this {
    return this.when(`attribute_not_exists(${this.name(attribute)})`);
  }

  write(): Written {
    const clauses = [
      ...(this.#set.length > 0 ? [`SET ${this.#set.join(', ')}`] : []),
      ...(this.#removed.length > 0 ? [`REMOVE ${this.#removed.join(', ')}`] : []),
    ];
    const condition = this.#conditions.map((each) => (this.#conditions.length > 1 ? `(${each})` : each)).join(' AND ');
    return {
      ...(clauses.length > 0 && { UpdateExpression: clauses.join(' ') }),
      ...(condition !== '' && { ConditionExpression: condition }),
      ...(this.#names.size > 0 && {
        ExpressionAttributeNames: Object.fromEntries([...this.#names].map(([name, place]) => [place, name])),
      }),
      ...(this.#count > 0 && { ExpressionAttributeValues: this.#values }),
    };
  }
}
