/**
 * The names of options in other libraries (pg-boss, graphile-worker, BullMQ, DBOS, node-postgres, Redlock), and here. A
 * comparison of letters alone would suggest another option for these, as `after` for `startAfter`, or none.
 */
const HERE: Readonly<Record<string, readonly string[]>> = {
  startAfter: ['delay'],
  retries: ['attempts', 'retry'],
  retryLimit: ['attempts', 'retry'],
  retryCount: ['attempts', 'retry'],
  maxRetries: ['attempts', 'retry'],
  maxAttempts: ['attempts', 'retry'],
  retryDelay: ['backoff', 'retry'],
  retryBackoff: ['backoff', 'retry'],
  expireInSeconds: ['timeout'],
  timeoutMS: ['timeout'],
  deadLetter: ['onError'],
  singletonKey: ['unique'],
  jobKey: ['unique'],
  jobId: ['unique'],
  deduplication: ['unique'],
  deduplicationID: ['unique'],
  queueName: ['key'],
  repeat: ['cron'],
  pattern: ['cron'],
  tz: ['timezone'],
  schema: ['payload', 'fields'],
  input: ['payload', 'fields'],
  ttl: ['lease'],
  duration: ['lease'],
  lockDuration: ['lease'],
  retryTimeout: ['wait'],
  pollInterval: ['poll'],
  pollingIntervalSeconds: ['poll'],
  teamSize: ['concurrency'],
  concurrentJobs: ['concurrency'],
  localConcurrency: ['concurrency'],
  limiter: ['rate'],
  removeOnComplete: ['history'],
  deleteAfterSeconds: ['history'],
  maxConnections: ['max'],
  poolSize: ['max'],
  maxPoolSize: ['max'],
};

/**
 * The option that does the same as `word` in another library. Undefined: `word` is not in the list; null: `known` has no such
 * option, and a similar word would mislead.
 */
export function calledHere(word: string, known: readonly string[]): string | null | undefined {
  if (!Object.hasOwn(HERE, word)) return undefined;
  return HERE[word]?.find((name) => known.includes(name)) ?? null;
}
