import { maskUrl } from "../../../model/maskUrl.ts";
import type { Report } from "../../../ports/kinds.ts";

/** Only a warning: the specification reads any text here, a `file:` string too. */
export function checkAmqpUri(key: string, uri: string, report: Report): void {
  if (/^amqps?:\/\/./i.test(uri)) return;
  const file = uri.startsWith("file:") ? "; no file is read for this key" : "";
  report.warning(
    key,
    `expected an AMQP URI such as amqp://host:5672/vhost, found ${JSON.stringify(maskUrl(uri))}${file}`,
  );
}
