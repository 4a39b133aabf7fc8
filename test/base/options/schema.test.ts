import * as v from 'valibot';
import { describe, expect, expectTypeOf, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { checkOptions } from '../../../src/base/options/options.ts';
import {
  type InferInput,
  type InferOutput,
  type StandardSchemaV1,
  schemaOption,
  validate,
} from '../../../src/base/options/schema.ts';

const order = v.object({
  id: v.string(),
  lines: v.array(v.object({ sku: v.string(), count: v.optional(v.number(), 1) })),
});

describe('validate', () => {
  test('returns at once what a synchronous schema makes of the value', () => {
    const value = validate(order, { id: 'a', lines: [{ sku: 'x' }] }, 'payload');
    expect(value).not.toBeInstanceOf(Promise);
    expect(value).toEqual({ id: 'a', lines: [{ sku: 'x', count: 1 }] });
  });

  test('returns a promise for an asynchronous one', async () => {
    const schema = v.pipeAsync(
      v.string(),
      v.checkAsync(async (text) => text !== 'taken', 'is taken'),
    );
    expect(await validate(schema, 'free', 'name')).toBe('free');
    await expect(validate(schema, 'taken', 'name')).rejects.toThrow('name was refused by its schema; name: is taken');
  });

  test('what is refused is named with its path, its reason and its value', () => {
    const broken = () => validate(order, { id: 7, lines: [{ sku: 'x' }, { sku: 8 }] }, 'payload');
    expect(broken).toThrow(InvalidInput);
    expect(broken).toThrow(
      'payload was refused by its schema; payload.id: Invalid type: Expected string but received 7; ' +
        'payload.lines.1.sku: Invalid type: Expected string but received 8',
    );
    expect(broken).toThrow(expect.objectContaining({ field: 'payload.id' }));
  });

  test('a long list of issues is cut', () => {
    const many = () =>
      validate(
        v.array(v.string()),
        Array.from({ length: 100 }, () => 1),
        'payload',
      );
    expect(many).toThrow(/; and 95 more$/);
  });

  test('without a schema the value passes as it is', () => {
    const value = { any: 'thing' };
    expect(validate(undefined, value, 'payload')).toBe(value);
  });

  test('types are those of the schema', () => {
    expectTypeOf<InferInput<typeof order>>().toEqualTypeOf<{
      id: string;
      lines: { sku: string; count?: number | undefined }[];
    }>();
    expectTypeOf<InferOutput<typeof order>>().toEqualTypeOf<{ id: string; lines: { sku: string; count: number }[] }>();
    expectTypeOf<InferInput<undefined>>().toBeUnknown();
    expectTypeOf<StandardSchemaV1<string, number>>().toExtend<StandardSchemaV1>();
    expect(validate(v.string(), 'x', 'f')).toBe('x');
  });
});

describe('schemaOption', () => {
  test('takes any Standard Schema, also one that is a function, or nothing', () => {
    const read = (payload: unknown) => checkOptions('f', { payload }, { payload: schemaOption() }).payload;
    const callable = Object.assign(() => {}, { '~standard': order['~standard'] });
    expect(read(order)).toBe(order);
    expect(read(callable)).toBe(callable);
    expect(read(undefined)).toBeUndefined();
    for (const value of [{}, 'string', { '~standard': 1 }, () => {}]) {
      expect(() => read(value)).toThrow(/option "payload" for f must be a Standard Schema/);
    }
  });
});
