/**
 * Subjects of commits: an imperative verb and its object, at most 72 characters, as in "Skip locked rows in replay". The
 * body says why, and what was measured.
 */

/** A verb that is missing here is added in the commit that begins with it. */
const VERBS = new Set(
  `Accept Add Adopt Allow Answer Apply Ask Assert Attribute Await Begin Blame Bound Break Bring Build Bump Call Cancel Catch
  Check Choose Clean Close Collect Compare Compress Compute Cost Count Cover Create Cut Decide Declare Decode
  Deduplicate Delete Deliver Derive Describe Disable Document Drop Enable Encode End Escape Exclude Expand Explain
  Export Expose Extract Fail Filter Find Finish Fix Fold Follow Forget Format Free Generate Give Group Guard Handle
  Hash Hide Hold Ignore Import Include Increase Index Inline Isolate Join Judge Keep Label Learn Leave Let Limit Lint
  List Load Lock Log Lower Make Map Mark Mask Match Measure Mention Merge Move Name Narrow Note Number Open Order Park
  Parse Pass Pause Pick Pin Place Plan Prefer Prevent Print Prove Pull Push Put Quote Raise Reach Read Rebuild Reclaim
  Record Reduce Refer Refuse Reject Relay Release Reload Remove Rename Reorder Repair Repeat Replace Replay Report
  Require Reset Resolve Respect Restore Resume Return Reuse Revert Rewrite Round Route Run Sample Save Say Schedule
  Seek Send Separate Set Settle Share Shorten Show Shrink Simplify Skip Sort Spare Split Start State Stop Store Strip
  Support Swap Switch Take Tell Test Time Trace Treat Trim Trust Try Turn Undo Unify Update Upgrade Use Validate
  Verify Wait Wake Warn Widen Wire Wrap Write`.split(/\s+/),
);

function startsWithVerb({ header }) {
  const [verb, object] = (header ?? "").split(" ");
  return [VERBS.has(verb) && object !== undefined, `"${verb}" is no imperative verb of .commitlintrc.js`];
}

export default {
  parserPreset: { parserOpts: { headerPattern: /^(.*)$/, headerCorrespondence: ["subject"] } },
  plugins: [{ rules: { "starts-with-verb": startsWithVerb } }],
  rules: { "header-max-length": [2, "always", 72], "header-trim": [2, "always"], "starts-with-verb": [2, "always"] },
};
