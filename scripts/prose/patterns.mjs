// Turns of phrase that are hard to understand, and what to write instead.

const PARTICIPLES =
  'Told|Kept|Held|Left|Taken|Given|Seen|Heard|Known|Beaten|Broken|Lost|Sent|Found|Gone|Met|Had|Drawn|[A-Z][a-z]{2,}ed';

export const PATTERNS = [
  { find: /\bwho(?:m)?ever\b/gi, say: 'a subject: "the worker that …", "a caller that …"' },
  { find: /\bnobody\b/gi, say: 'what kind of subject: "no process", "no caller", "nothing"' },
  { find: /\b(?:he|him|his|himself)\b/g, say: '"it", or the name of the thing' },
  { find: /\b(?:is|are|was|were|be|been|being)\s+had\b/gi, say: 'the verb: held, read, granted, returned' },
  {
    find: /\bwhat\s+(?:is|was|are|were|has\s+been)\s+(?:held|met|heard|told|kept|noted)\b/gi,
    say: 'a noun: "the locks that it holds"',
  },
  { find: /\bbeside\b/gi, say: '"next to", "at the same time as", "in addition to"' },
  { find: /\bbut\s+for\b|\b(?:nothing|none|no\s+other|anything|everything|all)\s+but\b/gi, say: '"except"' },
  {
    find: /\b(?:is|are|was|were|be|been|being)\s+heard\b|\b(?:hears?|heard|tells?|told|known|knows?|knew)\s+of\b/gi,
    say: 'receives, learns, reports, knows',
  },
  {
    find: /\b(?:a|the|each|every|one|another|last|next|first)\s+looks?\b(?!-)/gi,
    say: '"poll", "search", "check", "peek"',
  },
  { find: /\bin\s+vain\b/gi, say: '"without success"' },
  {
    find: /(?:^|[\0.;:|]\s*)(?:[-*]\s+)?who\s+(?:asks|comes|looks|wants|lacks|finds|sees|releases|claims|watches|stands|shows|gives|takes|makes)\b/gi,
    say: 'a subject: "a caller that …"',
  },
  { find: /\b(?:by|for|from|of|to|with|so that)\s+who\b/gi, say: 'a noun: "the caller that …", "its waiters"' },
  { find: /\b(?:for|after|in|within)\s+so\s+long\b(?!\s+(?:that|as)\b)/gi, say: '"for this long", "within this time"' },
  { find: /\bdear(?:er|est)?\b/gi, say: '"expensive", "costs more"' },
  { find: /\bat\s+the\s+(?:most|least)\b/gi, say: '"at most", "at least"' },
  { find: /\ball\s+the\s+same\b/gi, say: '"anyway"' },
  { find: /\bwhat\s+(?:comes?|came)\s+of\b/gi, say: '"the outcome of"' },
];

/** Names of types in the program itself. */
export const TYPE_NAMES = {
  find: new RegExp(`^\\s*(?:export\\s+)?(?:interface|type|class)\\s+(${PARTICIPLES})\\b(?! extends PawlError)`, 'gm'),
  say: 'a noun: request, grant, row, outcome',
};
