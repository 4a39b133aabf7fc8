/** A node of a parse tree, as Postgres writes it where `debug_print_parse` is on: its kind, and its fields. */
export interface Node {
  readonly kind: string;
  readonly fields: ReadonlyMap<string, readonly Value[]>;
}

export type Value = string | Node | readonly Value[];

/** A name that was looked up for certain arguments, which are types as they were before anything was made fit. */
export interface Call {
  readonly kind: 'function' | 'operator' | 'aggregate';
  /** `pg_proc.oid` or `pg_operator.oid`. */
  readonly oid: string;
  readonly args: readonly Argument[];
  /** `pg_type.oid` of what it gives. */
  readonly result: string | undefined;
}

export interface Argument {
  /** `pg_type.oid`; undefined where the tree does not tell it. */
  readonly type: string | undefined;
  /** It may have been written as `'…'`, which has no type of its own until something is chosen for it. */
  readonly isLiteral: boolean;
  /** It was not written: it is the default of a parameter. */
  readonly isDefault: boolean;
}

/** Every function, operator and aggregate that stands in the tree. */
export function callsIn(text: string): Call[] {
  return [...nodesOf(readTree(text))].flatMap(callsOf);
}

function callsOf(node: Node): Call[] {
  const args = list(node, 'args').map(argument);
  const result = typeOf(node);
  switch (node.kind) {
    case 'FUNCEXPR':
      // 0: written as a call. Casts, and what SQL has syntax for, are not looked up by name.
      return one(node, 'funcformat') === '0' ? [{ kind: 'function', oid: one(node, 'funcid'), args, result }] : [];
    case 'OPEXPR':
    case 'DISTINCTEXPR':
    case 'NULLIFEXPR':
      return [{ kind: 'operator', oid: one(node, 'opno'), args, result }];
    case 'SCALARARRAYOPEXPR':
      return [{ kind: 'operator', oid: one(node, 'opno'), args: [args[0] ?? UNTOLD, UNTOLD], result }];
    case 'AGGREF':
      return [{ kind: 'aggregate', oid: one(node, 'aggfnoid'), args: aggregated(node), result }];
    case 'WINDOWFUNC':
      return [{ kind: 'function', oid: one(node, 'winfnoid'), args, result }];
    case 'ROWCOMPAREEXPR':
    case 'ROWCOMPARE': {
      const [left, right] = [list(node, 'largs').map(argument), list(node, 'rargs').map(argument)];
      const operators = list(node, 'opnos').slice(1) as string[];
      return operators.map((oid, nth) => ({
        kind: 'operator',
        oid,
        args: [left[nth] ?? UNTOLD, right[nth] ?? UNTOLD],
        result,
      }));
    }
    default:
      return [];
  }
}

const UNTOLD: Argument = { type: undefined, isLiteral: false, isDefault: false };

function aggregated(node: Node): Argument[] {
  return list(node, 'args')
    .filter(isNode)
    .filter((entry) => one(entry, 'ressortgroupref') === '0' || one(entry, 'resjunk') === 'false')
    .map((entry) => argument(entry.fields.get('expr')?.[0]));
}

function argument(value: Value | undefined): Argument {
  if (!isNode(value)) return UNTOLD;
  const bare = unconverted(value);
  const isLiteral = bare.kind === 'CONST';
  return { type: typeOf(bare), isLiteral, isDefault: isLiteral && one(bare, 'location') === '-1' };
}

/** Without what Postgres put around it by itself, so that it fits. */
function unconverted(node: Node): Node {
  const isImplicit = ['relabelformat', 'coerceformat', 'convertformat', 'coercionformat', 'funcformat'].some(
    (field) => one(node, field) === '2',
  );
  const inner = node.fields.get('arg')?.[0] ?? list(node, 'args')[0];
  return isImplicit && isNode(inner) ? unconverted(inner) : node;
}

const TYPE_FIELDS = [
  'vartype',
  'consttype',
  'paramtype',
  'funcresulttype',
  'opresulttype',
  'aggtype',
  'wintype',
  'resulttype',
  'array_typeid',
  'row_typeid',
  'casetype',
  'coalescetype',
  'minmaxtype',
  'refrestype',
  'typeId',
  'type',
];
const BOOLEAN = '16';
const BOOLEANS = ['SCALARARRAYOPEXPR', 'BOOLEXPR', 'NULLTEST', 'BOOLEANTEST', 'ROWCOMPAREEXPR', 'ROWCOMPARE'];

function typeOf(node: Node): string | undefined {
  if (BOOLEANS.includes(node.kind)) return BOOLEAN;
  if (node.kind === 'SUBLINK') return ofSubLink(node);
  const field = TYPE_FIELDS.find((name) => node.fields.has(name));
  return field === undefined ? undefined : one(node, field);
}

/** 4: of one value, which is that of its only column. The type of an array of them is not told. */
function ofSubLink(node: Node): string | undefined {
  const kind = one(node, 'subLinkType');
  if (kind === '0' || kind === '1' || kind === '2') return BOOLEAN;
  const query = node.fields.get('subselect')?.[0];
  const column = isNode(query) ? list(query, 'targetList')[0] : undefined;
  const value = isNode(column) ? column.fields.get('expr')?.[0] : undefined;
  return kind === '4' && isNode(value) ? typeOf(value) : undefined;
}

function one(node: Node, field: string): string {
  const value = node.fields.get(field)?.[0];
  return typeof value === 'string' ? value : '';
}

function list(node: Node, field: string): readonly Value[] {
  const value = node.fields.get(field)?.[0];
  return Array.isArray(value) ? value : [];
}

function isNode(value: Value | undefined): value is Node {
  return typeof value === 'object' && 'kind' in value;
}

function* nodesOf(value: Value): Iterable<Node> {
  if (typeof value === 'string') return;
  if (isNode(value)) yield value;
  for (const inner of isNode(value) ? [...value.fields.values()].flat() : value) yield* nodesOf(inner);
}

/** `{KIND :field value …}`, `(value …)`, and words. */
function readTree(text: string): Value {
  const words = [...text.matchAll(/[{}()]|"(?:[^"\\]|\\.)*"|(?:[^\s(){}\\]|\\.)+/gs)].map(([word]) => word);
  let at = 0;
  const read = (): Value => {
    const word = words[at++] ?? '';
    if (word === '(') return readList();
    return word === '{' ? readNode() : word;
  };
  const readList = (): Value[] => {
    const values: Value[] = [];
    while (at < words.length && words[at] !== ')') values.push(read());
    at += 1;
    return values;
  };
  const readNode = (): Node => {
    const kind = words[at++] ?? '';
    const fields = new Map<string, Value[]>();
    let values: Value[] = [];
    while (at < words.length && words[at] !== '}') {
      const value = read();
      if (typeof value === 'string' && value.startsWith(':')) fields.set(value.slice(1), (values = []));
      else values.push(value);
    }
    at += 1;
    return { kind, fields };
  };
  return read();
}
