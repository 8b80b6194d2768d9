// Asks every URL of the command line, at each address that its host name has: a headless Service has one for each pod.
// Ends with 1 when an answer is not 200 within a minute.
import { lookup } from "node:dns/promises";
import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const TRIES = 12;
const WAIT_MS = 5000;

/** Status and body of a GET at one address, under the URL's own host name. */
function get(url, { address, family }) {
  return new Promise((resolve, reject) => {
    const { hostname: host, port, pathname: path } = new URL(url);
    const asked = request({ host: address, family, port, path, headers: { host }, timeout: WAIT_MS }, (answer) => {
      let body = "";
      answer.setEncoding("utf8").on("data", (text) => {
        body += text;
      });
      answer.once("end", () => resolve({ status: answer.statusCode, body }));
    });
    asked.once("timeout", () => asked.destroy(new Error("no answer")));
    asked.once("error", reject);
    asked.end();
  });
}

/** Tells what each address answered; whether all were 200. */
async function ask(url) {
  try {
    const addresses = await lookup(new URL(url).hostname, { all: true });
    const answers = await Promise.all(addresses.map((each) => get(url, each)));
    answers.forEach(({ status, body }, index) => {
      console.log(`${url} at ${addresses[index].address}: ${status} ${body.slice(0, 500)}`);
    });
    return answers.every(({ status }) => status === 200);
  } catch (error) {
    console.log(`${url}: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

async function askUntilReady(url) {
  for (let left = TRIES; left > 0; left -= 1) {
    if (await ask(url)) return true;
    if (left > 1) await sleep(WAIT_MS);
  }
  return false;
}

const results = await Promise.all(process.argv.slice(1).map(askUntilReady));
process.exitCode = results.every(Boolean) ? 0 : 1;
