import type { Place } from './settings.ts';
import type { ObservedStore } from './store.ts';

/** Opens the store that the settings name, and makes the tables that are missing. */
export async function openStore(place: Place, applicationName: string, max?: number): Promise<ObservedStore> {
  const store = await load(place, applicationName, max);
  await store.prepare();
  return store;
}

/** Each engine is loaded when it is meant. */
async function load(place: Place, applicationName: string, max: number | undefined): Promise<ObservedStore> {
  if (place.engine === 'postgres') {
    const { openPostgres } = await import('./postgres/store.ts');
    return openPostgres(place.url, applicationName, max);
  }
  const { openDynamo } = await import('./dynamodb/store.ts').catch(withoutClient);
  return openDynamo(place.table);
}

function withoutClient(error: unknown): never {
  const isMissing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND';
  if (!isMissing) throw error;
  throw new Error('--engine dynamodb needs a package that Pawl does not bring: npm install @aws-sdk/client-dynamodb', {
    cause: error,
  });
}
