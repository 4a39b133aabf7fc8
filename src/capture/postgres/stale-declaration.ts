/**
 * The capture was applied with another declaration, or detached, after this process had read the declaration. What was done since
 * is rolled back.
 */
export class StaleDeclaration extends Error {
  constructor() {
    super('the capture has another declaration by now');
    this.name = 'StaleDeclaration';
  }
}
