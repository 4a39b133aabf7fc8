import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { type QuestionsModelOptions, type QuestionsPlant, questionsModel } from './questions-model.ts';

const MOST = 50_000;

const ASKED: QuestionsModelOptions = { workers: 2, answers: true };
const PATIENT: QuestionsModelOptions = { ...ASKED, isPatient: true };

const ALL: [string, QuestionsModelOptions][] = [
  ['it is answered', ASKED],
  ['it is read, and not answered', { ...ASKED, answers: false }],
  ['its sender waits for ever', PATIENT],
  ['its sender waits for ever, a death, a raise', { ...PATIENT, crashes: 1, raises: 1 }],
  [
    'its sender waits for ever, a living worker is declared dead, a lost answer',
    { ...PATIENT, suspicions: 1, losses: 1 },
  ],
  ['a death, a raise', { ...ASKED, crashes: 1, raises: 1 }],
  ['a death, a request is carried out twice', { ...ASKED, crashes: 1, doubles: 1 }],
  ['a living worker is declared dead, a lost answer', { ...ASKED, suspicions: 1, losses: 1 }],
];

// Invariant Y4.
test.each(ALL)('one turn has read a question, or its sender knows that none will: %s', (_, options) => {
  const { fault, stuck, states } = explore(questionsModel(options), MOST);
  expect(fault).toBeUndefined();
  expect(stuck).toBeUndefined();
  expect(states).toBeGreaterThan(100);
});

const BOTH = 'a question was taken back, and was read';

const PLANTS: [QuestionsPlant, QuestionsModelOptions, string][] = [
  ['a commit marks no question', ASKED, BOTH],
  ['a question that was read is taken back', ASKED, BOTH],
  ['a question that was taken back is read', ASKED, BOTH],
  ['a question is taken back without its message', ASKED, 'a turn is given back again and again'],
  [
    'what was read is not removed before a claim',
    { ...ASKED, crashes: 1, raises: 1 },
    'a message was read by two turns',
  ],
  ['what runs is not marked', PATIENT, 'stuck'],
];

test.each(PLANTS)('a planted bug is found: %s', (plant, options, words) => {
  const { fault, stuck } = explore(questionsModel({ ...options, plant }), MOST);
  expect(fault?.what ?? (stuck && 'stuck')).toBe(words);
});
