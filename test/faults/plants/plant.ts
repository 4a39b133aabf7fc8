import type pg from 'pg';

/** Puts a bug into a function of the database. @throws Error  nothing was changed: a plant without an effect proves nothing */
export async function plantSql(
  eye: pg.Pool | pg.ClientBase,
  name: string,
  change: (source: string) => string,
): Promise<void> {
  const { rows } = await eye.query<{ source: string }>(
    "select pg_get_functiondef(p.oid) as source from pg_proc p where p.pronamespace = 'pawl'::regnamespace and p.proname = $1",
    [name],
  );
  if (rows.length === 0) throw new Error(`there is no function pawl.${name} to plant a bug in`);
  for (const { source } of rows) {
    const planted = change(source);
    if (planted === source) throw new Error(`the plant in pawl.${name} has changed nothing`);
    await eye.query(planted);
  }
}
