import type { RouteConfig, RouteTarget } from "./types.ts";

/** The destinations of a route: one, or those of its list. @param index of the route, for the key paths */
export function targetsOf(route: RouteConfig, index: number): readonly RouteTarget[] {
  const keyPath = `routes[${index}]`;
  if (route.destinations === undefined) return [{ ...route, keyPath }];
  return route.destinations.map(({ name, ...rest }, n) => ({
    ...rest,
    destination: name,
    keyPath: `${keyPath}.destinations[${n}]`,
  }));
}
