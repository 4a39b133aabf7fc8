import { sharedDynamo } from '../../support/dynamodb.ts';
import type { Runner } from '../part.ts';
import { lockOnDynamo, lockPart } from './part.ts';

/** The part of locks on each engine. `isMissing` says why it cannot run here. */
export const LOCK_PARTS: Readonly<
  Record<'postgres' | 'dynamodb', { readonly part: Runner; readonly isMissing: () => Promise<string | undefined> }>
> = {
  postgres: { part: lockPart, isMissing: () => Promise.resolve(undefined) },
  dynamodb: {
    part: lockOnDynamo(async () => (await sharedDynamo()).endpoint),
    isMissing: async () =>
      (await sharedDynamo()).kind === 'dynalite' ? 'guards need transactions, which dynalite has not' : undefined,
  },
};
