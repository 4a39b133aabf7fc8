import { NotSupported } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { type DynamoEngine, dynamodb } from './index.ts';

/** The options of a client of our own. Options that are left out come from the environment, as usual with AWS. */
export interface OwnClientOptions {
  readonly table: string;
  readonly region?: string | undefined;
  /** The address of DynamoDB Local, or of a VPC endpoint. */
  readonly endpoint?: string | undefined;
  /** Default: warnings and errors go to stderr. */
  readonly logger?: Logger | undefined;
}

/** Makes an engine on a client of our own, for programs that are not given a client. Call `stop` at the end. @throws NotSupported */
export async function openDynamodb({
  table,
  region,
  endpoint,
  logger,
}: OwnClientOptions): Promise<{ engine: DynamoEngine; stop: () => void }> {
  const { DynamoDBClient } = await import('@aws-sdk/client-dynamodb').catch((error: unknown) => {
    throw new NotSupported(
      'DynamoDB needs the package @aws-sdk/client-dynamodb; npm install @aws-sdk/client-dynamodb@3',
      { cause: error },
    );
  });
  const client = new DynamoDBClient({
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && { endpoint }),
    ...(isOnThisMachine(endpoint) && process.env['AWS_ACCESS_KEY_ID'] === undefined && LETS_EVERYBODY_IN),
  });
  return { engine: dynamodb(client, { table, logger }), stop: () => client.destroy() };
}

const LETS_EVERYBODY_IN = { region: 'local', credentials: { accessKeyId: 'local', secretAccessKey: 'local' } };

function isOnThisMachine(endpoint: string | undefined): boolean {
  return endpoint !== undefined && /^https?:\/\/(localhost|127\.0\.0\.1|\[::1\])(:|\/|$)/.test(endpoint);
}
