// The cost of requests to DynamoDB.
import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';

interface Capacity {
  readonly CapacityUnits?: number;
}

/** The capacity units that the service charged, and the calls. */
export interface Units {
  read: number;
  write: number;
  calls: number;
  /** The calls that get one row. */
  gets: number;
}

/** A client that counts the cost of its calls. */
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
      // For a transaction it is a list.
      for (const { CapacityUnits = 0 } of [output.ConsumedCapacity ?? []].flat()) {
        units[isRead ? 'read' : 'write'] += CapacityUnits;
      }
      return output;
    } catch (error) {
      // A write whose condition is refused costs as much as the write.
      units.write += 1;
      throw error;
    }
  };
  return { send };
}
