import type { Attribute, RequestTexts } from './client.ts';

/** Names of this form are never reserved. */
const PLAIN = /^[a-z]\d?$/;

/**
 * Builds the texts of a request. Values are always placeholders. So are names, except the shortest ones, since each placeholder
 * costs a little. So an attribute may have any name, and no value is read as a part of the text.
 */
export class Expression {
  readonly #places = new Map<string, string>();
  readonly #names: Record<string, string> = {};
  readonly #values: Record<string, Attribute> = {};
  readonly #conditions: string[] = [];
  #set = '';
  #removed = '';
  #count = 0;

  /** The name of an attribute in the texts. */
  name(attribute: string): string {
    if (PLAIN.test(attribute)) return attribute;
    const known = this.#places.get(attribute);
    if (known !== undefined) return known;
    const place = `#${this.#places.size}`;
    this.#places.set(attribute, place);
    this.#names[place] = attribute;
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

  /** Sets an attribute to the value of an expression: `if_not_exists(#0, :0) + :1`. */
  setTo(attribute: string, expression: string): this {
    this.#set += `${this.#set === '' ? 'SET' : ','} ${this.name(attribute)} = ${expression}`;
    return this;
  }

  remove(attribute: string): this {
    this.#removed += `${this.#removed === '' ? 'REMOVE' : ','} ${this.name(attribute)}`;
    return this;
  }

  /** Adds a condition; all conditions have to hold. */
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

  write(): RequestTexts {
    const all = this.#conditions;
    const written: { -readonly [K in keyof RequestTexts]: RequestTexts[K] } = {};
    if (this.#set !== '' || this.#removed !== '') written.UpdateExpression = `${this.#set} ${this.#removed}`.trim();
    if (all.length > 0) written.ConditionExpression = all.length > 1 ? `(${all.join(') AND (')})` : (all[0] ?? '');
    if (this.#places.size > 0) written.ExpressionAttributeNames = this.#names;
    if (this.#count > 0) written.ExpressionAttributeValues = this.#values;
    return written;
  }
}
