/** What one owner believed to hold, by a clock that all processes of the machine share (milliseconds). */
export interface Hold {
  readonly owner: string;
  readonly name: string;
  /** 1: exclusive; 2147483647: shared; else the permits of a semaphore. */
  readonly capacity: number;
  readonly token: string;
  /** When it asked for it. */
  readonly asked: number;
  /** When it had the answer. */
  readonly from: number;
  /** The last moment at which it still believed that it holds it. */
  readonly until: number;
}

/** One write under a guard that was committed. */
export interface Write {
  readonly name: string;
  readonly value: number;
  readonly token: string;
  /** The order in which the writes were made. */
  readonly seq: number;
}

/**
 * Says what in a history cannot have come from a right lock with fencing; nothing when it can.
 *
 * For one name this is the whole question of linearizability: between the answer to its request and the last moment it
 * believes, an owner certainly holds the lock, so no instant may lie in more of these spans than the smallest capacity
 * among them admits. If none does, the operations can be put in an order that a lock kept by one hand would have given:
 * there is always room to grant within (asked, from), and to end after `until`.
 */
export function violations(holds: readonly Hold[], writes: readonly Write[] = []): string[] {
  const names = new Set([...holds, ...writes].map((each) => each.name));
  return [...names].flatMap((name) => {
    const ofName = holds.filter((hold) => hold.name === name);
    const written = writes.filter((write) => write.name === name).sort((a, b) => a.seq - b.seq);
    return [...overlaps(ofName), ...tokensOutOfOrder(ofName), ...staleWrites(written)];
  });
}

function overlaps(holds: readonly Hold[]): string[] {
  const found: string[] = [];
  for (const hold of holds) {
    // Whenever too many overlap, they do so when the last of them begins.
    const then = holds.filter((other) => other.from <= hold.from && hold.from < other.until);
    const admitted = Math.min(...then.map((other) => other.capacity));
    if (then.length > admitted)
      found.push(`${then.length} hold "${hold.name}", which admits ${admitted}: ${brief(then)}`);
  }
  return found;
}

/** Of two grants of which one was over before the other was asked for, the later one has the greater token. */
function tokensOutOfOrder(holds: readonly Hold[]): string[] {
  const byAnswer = holds.toSorted((a, b) => a.from - b.from);
  return byAnswer.flatMap((later) =>
    byAnswer
      .filter((earlier) => earlier.from < later.asked && BigInt(earlier.token) >= BigInt(later.token))
      .map((earlier) => `a later grant of "${later.name}" has no greater token: ${brief([earlier, later])}`),
  );
}

/** Each write goes on from the one before, and none was made with an older token than one before it. */
function staleWrites(writes: readonly Write[]): string[] {
  return writes.flatMap((write, index) => {
    const before = writes[index - 1];
    const found: string[] = [];
    if (write.value !== (before?.value ?? 0) + 1) {
      found.push(`an update of "${write.name}" was lost: ${write.value} was written after ${before?.value ?? 0}`);
    }
    if (before !== undefined && BigInt(write.token) < BigInt(before.token)) {
      found.push(`"${write.name}" was written with token ${write.token} after ${before.token}`);
    }
    return found;
  });
}

function brief(holds: readonly Hold[]): string {
  return holds
    .map(({ owner, token, asked, from, until }) => `${owner}#${token} asked ${asked}, held ${from} to ${until}`)
    .join('; ');
}
