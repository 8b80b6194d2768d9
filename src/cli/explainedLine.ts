export interface ExplainedLine {
  readonly label: string;
  readonly text: string;
}

export const line = (label: string, text: string): ExplainedLine => ({ label, text });
