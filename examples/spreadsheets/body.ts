import type { HonoRequest } from 'hono';
import * as v from 'valibot';
import { BadCsv, parseCsv } from './csv.ts';
import { type Create, CreateBody, type Update, UpdatePayload } from './payload.ts';
import { Refusal } from './refusal.ts';
import { findFlaw, type Row } from './sheet.ts';

/** @throws Refusal  400 naming the field, or 415 */
export async function readCreate(request: HonoRequest): Promise<Create & { readonly id: string }> {
  const given = await (isCsv(request) ? readCsv(request) : readJson(request));
  const body = check(CreateBody, given);
  refuseFlaw(body.columns, body.rows);
  return body;
}

/** @throws Refusal  400 naming the field, or 415 */
export async function readUpdate(request: HonoRequest, columns: readonly string[]): Promise<Update> {
  const body = check(UpdatePayload, await readJson(request));
  refuseFlaw(columns, body.rows);
  return body;
}

function isCsv(request: HonoRequest): boolean {
  return contentType(request) === 'text/csv';
}

function contentType(request: HonoRequest): string | undefined {
  return request.header('content-type')?.split(';')[0]?.trim().toLowerCase();
}

/** The name of the spreadsheet stands in the query, the columns in the first line. */
async function readCsv(request: HonoRequest): Promise<unknown> {
  const text = await request.text();
  try {
    return { id: request.query('id'), ...parseCsv(text) };
  } catch (error) {
    if (error instanceof BadCsv) throw new Refusal(400, 'bad_csv', error.message);
    throw error;
  }
}

async function readJson(request: HonoRequest): Promise<unknown> {
  if (contentType(request) !== 'application/json') {
    throw new Refusal(415, 'unsupported_type', 'send application/json (a new spreadsheet may also be text/csv)');
  }
  const text = await request.text();
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Refusal(
      400,
      'bad_json',
      `the body is no JSON: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

function check<S extends v.GenericSchema>(schema: S, given: unknown): v.InferOutput<S> {
  const result = v.safeParse(schema, given, { abortEarly: true });
  if (result.success) return result.output;
  const [issue] = result.issues;
  throw new Refusal(400, 'bad_body', issue.message, v.getDotPath(issue) ?? 'body');
}

function refuseFlaw(columns: readonly string[], rows: readonly Row[]): void {
  const flaw = findFlaw(columns, rows);
  if (flaw !== undefined) throw new Refusal(400, 'bad_body', flaw.message, flaw.field);
}
