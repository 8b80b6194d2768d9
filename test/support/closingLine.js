/** A jest reporter: the last line of a run, in a form that needs no parsing of jest's own. */
export default class ClosingLine {
  onRunComplete(_contexts, results) {
    const skipped = results.numPendingTests + results.numTodoTests;
    // A suite that could not be loaded has run no test and must not look like a passing one.
    const failed = results.numFailedTests + results.numRuntimeErrorTestSuites;
    const tail = skipped > 0 ? `, ${skipped} skipped` : "";
    process.stderr.write(`\ntests: ${results.numPassedTests} passed, ${failed} failed${tail}\n`);
  }
}
