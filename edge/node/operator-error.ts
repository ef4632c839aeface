/** A fault that the operator can mend: shown as one line without a stack, and the command exits with `exitCode`. */
export class OperatorError extends Error {
  /** 2 for bad input, 1 for a check that failed. */
  readonly exitCode: 1 | 2;

  constructor(message: string, exitCode: 1 | 2 = 2) {
    super(message);
    this.name = "OperatorError";
    this.exitCode = exitCode;
  }
}
