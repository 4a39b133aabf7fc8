import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

/** Says whether an answer is what the document promises of its operation. */
export function answersOf(
  document: Record<string, unknown>,
): (method: string, path: string, status: number) => ValidateFunction {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema({ $id: 'doc', ...document });
  return (method, path, status) => {
    const of = `doc#/paths/${path.replaceAll('~', '~0').replaceAll('/', '~1')}/${method.toLowerCase()}/responses/${status}/content/application~1json/schema`;
    const schema = ajv.getSchema(encodeURI(of)) ?? ajv.getSchema('doc#/components/schemas/Error');
    if (schema === undefined) throw new Error(`the document has no schema for ${method} ${path}`);
    return schema;
  };
}
