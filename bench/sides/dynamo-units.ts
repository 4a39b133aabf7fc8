// What requests to DynamoDB cost.
import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';

interface Capacity {
  readonly CapacityUnits?: number;
}

/** What the service charged for. */
export interface Units {
  read: number;
  write: number;
  calls: number;
  /** Those of the calls that get one row. */
  gets: number;
}

/** A client that counts what its calls cost. */
export function counted(client: DynamoDBClient, units: Units): unknown {
  const send = async (command: { input: Record<string, unknown> }, options: unknown): Promise<unknown> => {
    command.input['ReturnConsumedCapacity'] = 'TOTAL';
    const isRead = /^(Get|Query|Scan)/.test(command.constructor.name);
    units.calls += 1;
    if (command.constructor.name.startsWith('Get')) units.gets += 1;
    try {
      const output = (await client.send(command as never, options as never)) as {
        ConsumedCapacity?: Capacity | Capacity[];
      };
      // Of a transaction it is a list.
      for (const { CapacityUnits = 0 } of [output.ConsumedCapacity ?? []].flat()) {
        units[isRead ? 'read' : 'write'] += CapacityUnits;
      }
      return output;
    } catch (error) {
      // A refused condition costs what the write would have.
      units.write += 1;
      throw error;
    }
  };
  return { send };
}
