import type { Attribute, RequestTexts } from './client.ts';

/** Of these no word is reserved. */
const PLAIN = /^[a-z]\d?$/;

/**
 * Puts the parts of a request together. Values only ever go in by placeholders, and so do names, except the shortest, as
 * each has its price: an attribute may be called what it likes, and no value is read as text.
 */
export class Expression {
  readonly #places = new Map<string, string>();
  readonly #names: Record<string, string> = {};
  readonly #values: Record<string, Attribute> = {};
  readonly #conditions: string[] = [];
  #set = '';
  #removed = '';
  #count = 0;

  /** How an attribute is called in the texts. */
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

  /** To what an expression gives: `if_not_exists(#0, :0) + :1`. */
  setTo(attribute: string, expression: string): this {
    this.#set += `${this.#set === '' ? 'SET' : ','} ${this.name(attribute)} = ${expression}`;
    return this;
  }

  remove(attribute: string): this {
    this.#removed += `${this.#removed === '' ? 'REMOVE' : ','} ${this.name(attribute)}`;
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
