/** What the specification says of a topic glob, tried out in every way there is: the oracle for short texts. */
export function naivelyMatches(pattern: string, topic: string): boolean {
  if (pattern === "") return topic === "";
  const cuts = Array.from({ length: topic.length + 1 }, (_, at) => at);
  if (pattern.startsWith("**")) return cuts.some((at) => naivelyMatches(pattern.slice(2), topic.slice(at)));
  if (pattern.startsWith("*")) {
    const inSegment = cuts.filter((at) => at > 0 && !topic.slice(0, at).includes("."));
    return inSegment.some((at) => naivelyMatches(pattern.slice(1), topic.slice(at)));
  }
  return topic !== "" && topic.charAt(0) === pattern.charAt(0) && naivelyMatches(pattern.slice(1), topic.slice(1));
}
