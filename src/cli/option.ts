import { InvalidArgumentError } from "commander";
import { errorText } from "../model/errors.ts";

/**
 * The parser of an option for the command line library: what is wrong becomes a usage error.
 *
 * @param parse throws an Error that says what is expected
 */
export function optionParser<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      const expected = errorText(error);
      throw new InvalidArgumentError(`${expected.charAt(0).toUpperCase()}${expected.slice(1)}.`);
    }
  };
}
