import { packageVersion } from '../../engine/version.ts';
import { SCHEMAS } from '../schemas/index.ts';
import { ref } from '../schemas/parts.ts';
import { type Fields, type JsonSchema, schemaOf } from './field.ts';
import { IDEMPOTENCY_KEY } from './idempotency.ts';
import type { AnyRoute } from './route.ts';

/** The OpenAPI 3.1 document of these routes, made from the tables that the server itself uses. */
export function describeApi(routes: readonly AnyRoute[], basePath: string): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: operation(route) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Pawl',
      version: packageVersion(),
      description:
        'Queues, locks, actors, captures and files. Lists come in pages: pass `after` on. Counts stop at 10,000, which means that many or more. Ids and tokens are strings of digits. Every error has one shape, with a stable code.',
    },
    servers: [{ url: `${basePath}/api/v1` }],
    security: [{ bearer: [] }, { session: [] }],
    paths,
    components: {
      schemas: SCHEMAS,
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: 'pawl_session' },
      },
      responses: {
        Error: { description: 'Refused, or failed', content: { 'application/json': { schema: ref('Error') } } },
      },
    },
  };
}

function operation(route: AnyRoute): Record<string, unknown> {
  const { id, tag, summary, permission, params = {}, query = {}, status = 200, also = [], takesKey } = route;
  const key = takesKey ? [KEY_PARAMETER] : [];
  const parameters = [...parametersOf(params, 'path'), ...parametersOf(query, 'query'), ...key];
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(permission === undefined ? { security: [] } : { 'x-permission': permission }),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...requestBodyOf(route),
    responses: {
      ...Object.fromEntries(
        [status, ...also].map((done) => [done, { description: 'Done', content: contentOf(route) }]),
      ),
      default: { $ref: '#/components/responses/Error' },
    },
  };
}

/** See Idempotency-Key in docs/http.md. */
const KEY_PARAMETER = {
  name: IDEMPOTENCY_KEY,
  in: 'header',
  required: false,
  schema: { type: 'string', minLength: 1, maxLength: 255 },
} as const;

const BYTES = { type: 'string', format: 'binary' } as const;

function requestBodyOf({ body, list, takesBytes }: AnyRoute): object {
  if (takesBytes) return { requestBody: { required: true, content: { '*/*': { schema: BYTES } } } };
  if (body === undefined) return {};
  const required = Object.values(body).some(({ isRequired }) => isRequired);
  const one = schemaOf(body);
  const many = { type: 'array', items: one, minItems: 1, maxItems: list?.max };
  const schema = list === undefined ? one : { anyOf: [one, many] };
  return { requestBody: { required, content: { 'application/json': { schema } } } };
}

function contentOf({ answers, givesBytes, givesStream }: AnyRoute): object {
  if (givesStream) return { 'text/event-stream': { schema: { type: 'string' } } };
  return givesBytes ? { '*/*': { schema: BYTES } } : { 'application/json': { schema: answerOf(answers) } };
}

function parametersOf(fields: Fields, place: 'path' | 'query'): object[] {
  return Object.entries(fields).map(([name, { schema, isRequired }]) => ({
    name,
    in: place,
    required: place === 'path' || isRequired,
    schema,
  }));
}

export function answerOf(answers: string | JsonSchema): JsonSchema {
  return typeof answers === 'string' ? ref(answers) : answers;
}
