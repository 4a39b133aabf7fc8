import { Conflict, InvalidInput, NotFound, NotSupported } from '../../base/errors.ts';
import type { PostgresEngine, Transaction } from '../../engine/postgres/index.ts';
import { type CaptureOptions, type Declaration, type Difference, declare } from '../declare/definition.ts';
import { keepNumbers, waysOf } from '../declare/numbers.ts';
import type { Definition } from '../declare/source.ts';
import type { Reader } from '../postgres/catalog.ts';
import { readCopies, removeCopy, requireCopies } from '../postgres/copy.ts';
import { detach, gate, mend, remark } from '../postgres/install/apply.ts';
import { compare, type Line, markAll, markMissed, same } from '../postgres/install/plan.ts';
import { compareRowSecurity } from '../postgres/install/row-security.ts';
import {
  type InstalledLine,
  type InstalledState,
  nextId,
  readInstalled,
  readState,
  seeNextId,
} from '../postgres/install/state.ts';
import { ownerOf } from '../postgres/install/trigger.ts';
import { makeMonths } from '../postgres/log-partitions.ts';
import { resolve } from './resolve.ts';

/** The work that makes the database match the declaration. */
export interface CapturePlan {
  /** The differences from the declaration; empty if there are none. */
  readonly differences: readonly Difference[];
  /** All statements that `apply()` would run, in a form that psql accepts. Empty if there is nothing to do. */
  readonly sql: string;
}

/** A line as a consumer declares it; it gets its number when it is installed. */
export type LineDeclaration = Omit<Line, 'id'> & {
  /** The database that `compare` reads, if it is not the captured one. */
  readonly elsewhere?: PostgresEngine | undefined;
  /** Checks the other objects that the line needs, and returns the differences. */
  readonly compare?: (db: Reader, definition: Definition) => Promise<Difference[]>;
};

/** Installs, compares and removes a capture. */
export class Installer {
  readonly #engine: PostgresEngine;
  readonly #declared: Declaration;
  readonly #lines: LineDeclaration[] = [];
  /** Numbers that this process has drawn, and that are not installed yet: a failed `apply()` is tried again with the same. */
  readonly #numbers = new Map<string, number>();

  constructor(engine: PostgresEngine, options: CaptureOptions) {
    this.#engine = engine;
    this.#declared = declare(options);
  }

  /** Adds a consumer, which the next `apply()` installs. @throws Conflict when the name is taken */
  add(line: LineDeclaration): void {
    if (this.#lines.some(({ name }) => name === line.name)) {
      throw new Conflict(
        `"${line.name}" is declared twice for the capture "${this.#declared.entity}"; give one another name`,
      );
    }
    this.#lines.push(line);
  }

  async plan(): Promise<CapturePlan> {
    const { differences, definition, state } = await this.#compare(this.#engine);
    const hopeless = differences.filter(({ sql }) => sql.length === 0);
    const statements = [
      ...(await this.#missed(this.#engine, definition, state)),
      ...differences.flatMap(({ sql }) => sql),
    ];
    const elsewhere = await this.#compareElsewhere(definition);
    return {
      differences: [...hopeless, ...elsewhere, ...differences.filter(({ sql }) => sql.length > 0)],
      sql: remark(elsewhere) + mend(definition, state.schema, statements),
    };
  }

  async apply(): Promise<Difference[]> {
    const resolved = await resolve(this.#engine, this.#declared);
    // This comes first: if a table elsewhere cannot be made, no change must be written to the log for it.
    const made = await this.#mendElsewhere(resolved);
    await makeMonths(this.#engine);
    const mended = await this.#engine.transaction(async (tx) => {
      const mended: Difference[] = [...made];
      let { differences, state, definition } = await this.#compare(tx, resolved);
      refuseHopeless(differences);
      if (differences.length === 0) return mended;
      refuseRole(state);
      await tx.client.query({ text: gate(definition, tx.schema) });
      // Compares again, now that no transaction writes. Partitions get copies of a trigger only after the trigger was made, so
      // this may take a few rounds.
      for (let round = 0; round < 4; round += 1) {
        ({ differences, state, definition } = await this.#compare(tx, resolved));
        refuseHopeless(differences);
        if (differences.length === 0) return mended;
        const missed = round === 0 ? await this.#missed(tx, definition, state) : [];
        await tx.client.query({ text: [...missed, ...differences.flatMap(({ sql }) => sql)].join(';\n') });
        mended.push(...differences);
      }
      throw new Conflict(
        `the capture "${definition.entity}" still differs from its declaration after every repair; run verify() to see where`,
      );
    });
    this.#numbers.clear();
    return mended;
  }

  async verify(): Promise<readonly Difference[]> {
    try {
      const { differences, definition } = await this.#compare(this.#engine, undefined, false);
      const hidden = await compareRowSecurity(this.#engine, definition);
      return [...differences, ...hidden, ...(await this.#compareElsewhere(definition))];
    } catch (error) {
      if (!(error instanceof InvalidInput || error instanceof NotSupported)) throw error;
      const object = (error instanceof InvalidInput ? error.field : undefined) ?? this.#declared.entity;
      return [{ kind: 'declaration', object, problem: error.message, sql: [] }];
    }
  }

  /**
   * The numbers of the capture and of a line, if they are installed, and the declaration from which the triggers were made.
   * This call reads no catalog and no captured table: a worker that reads only the log needs no rights on them.
   */
  async find(name: string): Promise<InstalledLine | undefined> {
    const installed = await readInstalled(this.#engine, this.#declared.entity, name);
    return installed === undefined || installed.line === null ? undefined : { ...installed, line: installed.line };
  }

  /** Installs a line that was declared after `apply()`. */
  async install(name: string): Promise<InstalledLine> {
    await this.apply();
    return this.require(name);
  }

  /** @throws NotFound when the capture is not installed */
  async requireCapture(): Promise<{ capture: number; definition: Definition }> {
    const installed = await readInstalled(this.#engine, this.#declared.entity);
    if (installed !== undefined) return installed;
    throw this.#notInstalled();
  }

  /** @throws NotFound when the capture is not installed */
  async require(name: string): Promise<InstalledLine> {
    const found = await this.find(name);
    if (found !== undefined) return found;
    throw this.#notInstalled();
  }

  #notInstalled(): NotFound {
    const { entity } = this.#declared;
    return new NotFound(`the capture "${entity}" is not installed in this database; call apply() first`);
  }

  async detach(): Promise<void> {
    this.#numbers.clear();
    const { entity } = this.#declared;
    const copies = await readCopies(this.#engine, entity);
    await detach(this.#engine, entity);
    for (const copy of copies) {
      const elsewhere = this.#lines.find(({ name }) => name === copy.name)?.elsewhere;
      if (elsewhere === undefined) continue;
      // The other database may be gone, too, and must not keep the capture here.
      await removeCopy(elsewhere, copy).catch((error: unknown) =>
        this.#engine.options.logger.warn(
          { err: error, ...copy },
          'a capture was detached, and the other database keeps its records of a copy: delete them there from capture_copy_key, capture_copy_epoch and capture_copy_place',
        ),
      );
    }
  }

  /**
   * Statements that make projections go through all entities again, if the installed triggers may have missed changes, or if the
   * keys that they wrote have another meaning now. They compare with the installed declaration.
   */
  async #missed(db: Reader, definition: Definition, state: InstalledState): Promise<string[]> {
    const installed = state.capture?.definition;
    if (installed === undefined) return [];
    if (!same(waysOf(installed), waysOf(definition))) return markAll(state);
    return markMissed(same(installed, definition) ? state : await readState(db, installed));
  }

  async #compareElsewhere(definition: Definition): Promise<Difference[]> {
    const found: Difference[] = [];
    for (const { elsewhere, compare: look } of this.#lines) {
      if (elsewhere !== undefined) found.push(...((await look?.(elsewhere, definition)) ?? []));
    }
    return found;
  }

  async #number(
    db: Reader,
    table: 'capture_definition' | 'capture_line',
    name: string,
    draws: boolean,
  ): Promise<number> {
    const key = `${table} ${name}`;
    const drawn = this.#numbers.get(key);
    if (drawn !== undefined || !draws) return drawn ?? seeNextId(db, table);
    const number = await nextId(db, table);
    this.#numbers.set(key, number);
    return number;
  }

  /** Repairs the tables of copies, each in its database. */
  async #mendElsewhere(definition: Definition): Promise<Difference[]> {
    const mended: Difference[] = [];
    for (const { elsewhere, compare: look } of this.#lines) {
      if (elsewhere === undefined) continue;
      await requireCopies(elsewhere);
      await elsewhere.transaction(async (tx) => {
        const differences = (await look?.(tx, definition)) ?? [];
        refuseHopeless(differences);
        if (differences.length > 0) await tx.client.query({ text: differences.flatMap(({ sql }) => sql).join(';\n') });
        mended.push(...differences);
      });
    }
    return mended;
  }

  async #compare(
    db: PostgresEngine | Transaction,
    known?: Definition,
    draws = true,
  ): Promise<{ differences: Difference[]; definition: Definition; state: InstalledState }> {
    const installed = await readInstalled(db, this.#declared.entity);
    const definition = keepNumbers(known ?? (await resolve(db, this.#declared)), installed?.definition);
    const state = await readState(db, definition);
    // Lines of other programs that use the same capture stay.
    const others = state.lines.filter((row) => !this.#lines.some(({ name }) => name === row.name));
    const lines: Line[] = [...others];
    for (const { name, guarantee, definition: options } of this.#lines) {
      const row = state.lines.find((line) => line.name === name);
      if (row !== undefined && row.guarantee !== guarantee) {
        throw new Conflict(
          `"${name}" is installed with the guarantee '${row.guarantee}'; give the new one another name`,
        );
      }
      lines.push({
        id: row?.id ?? (await this.#number(db, 'capture_line', name, draws)),
        name,
        guarantee,
        definition: options,
      });
    }
    const id = state.capture?.id ?? (await this.#number(db, 'capture_definition', '', draws));
    const sorted = lines.toSorted((a, b) => a.id - b.id);
    const differences = compare({ id, definition, lines: sorted, schema: db.schema.name }, state);
    for (const line of this.#lines) {
      if (line.elsewhere === undefined) differences.push(...((await line.compare?.(db, definition)) ?? []));
    }
    return { differences, definition, state };
  }
}

/** @throws InvalidInput for differences that no statement repairs */
function refuseHopeless(differences: readonly Difference[]): void {
  const hopeless = differences.find(({ sql }) => sql.length === 0);
  if (hopeless !== undefined)
    throw new InvalidInput(`${hopeless.object}: ${hopeless.problem}`, { field: hopeless.kind });
}

function refuseRole({ role, schema }: InstalledState): void {
  if (role.exists ? role.member : role.may_create) return;
  const owner = ownerOf(schema);
  throw new NotSupported(
    role.exists
      ? `the trigger functions belong to the role ${owner}, of which this role is no member: grant ${owner} to it`
      : `the trigger functions belong to the role ${owner}, which this role may not create: create role ${owner} nologin, and grant it`,
  );
}
