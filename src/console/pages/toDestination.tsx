import { useLive } from "../live.tsx";
import { Choice } from "../ui.tsx";

/** Where replayed rows go. */
export function ToDestination(field: { readonly value: string; readonly onValue: (value: string) => void }) {
  const { overview } = useLive();
  const names = (overview?.destinations ?? []).map(({ name }) => [name, name] as const);
  return <Choice label="Deliver to" {...field} options={[["", "where they went before"], ...names]} />;
}
