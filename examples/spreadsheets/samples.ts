import { readFile } from 'node:fs/promises';
import { parseCsv } from './csv.ts';
import type { Cell } from './sheet.ts';

/** A spreadsheet that is asked for in `pawl dev`. */
export interface Sample {
  readonly id: string;
  readonly columns: string[];
  readonly rows: Cell[][];
}

const DATA = new URL('../../examples/spreadsheets/data/', import.meta.url);

/** One sheet of all countries and of all cities, one for each continent, and one for the cities of each country. */
export async function readSamples(): Promise<Sample[]> {
  const [countries, cities] = await Promise.all([read('countries.csv'), read('cities.csv')]);
  return [
    { id: 'countries', ...countries },
    { id: 'cities', ...cities },
    ...split(countries, 'Continent', (name) => `countries-of-${name}`),
    ...split(cities, 'Country', (name) => `cities-of-${name}`),
  ];
}

async function read(name: string): Promise<Omit<Sample, 'id'>> {
  return parseCsv(await readFile(new URL(name, DATA), 'utf8'));
}

function split(all: Omit<Sample, 'id'>, column: string, nameOf: (value: string) => string): Sample[] {
  const at = all.columns.indexOf(column);
  const values = [...new Set(all.rows.map((row) => String(row[at])))];
  return values.map((value) => ({
    id: slug(nameOf(value)),
    columns: all.columns,
    rows: all.rows.filter((row) => row[at] === value),
  }));
}

/** "Côte d'Ivoire" → "cote-d-ivoire" */
function slug(text: string): string {
  const plain = text.normalize('NFD').replaceAll(/\p{M}/gu, '').toLowerCase();
  return plain.replaceAll(/[^a-z0-9]+/g, '-').replaceAll(/^-|-$/g, '');
}
