import type { Finding } from "./check.js";

export function bareMembersIn(text: string): readonly Finding[];
