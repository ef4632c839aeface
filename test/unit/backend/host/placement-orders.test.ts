import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PlacementOrders } from "../../../../backend/host/placement-orders.ts";
import { keptLogger } from "../../../support/silent-logger.ts";
import { temporaryFolder } from "../../../support/temporary-folder.ts";

const order = (lease_number: number, generation: number) => ({ lease_number, generation, replicas: [] });

describe("whose placement orders a host takes", () => {
  let file: string;
  let remove: () => void;
  beforeEach(() => {
    const made = temporaryFolder();
    file = path.join(made.folder, "placement.json");
    remove = made.remove;
  });
  afterEach(() => remove());

  it("follows the growing number, and refuses an edge whose turn is over, telling it once", () => {
    const { logger, lines } = keptLogger();
    const orders = new PlacementOrders({ file, logger });
    expect(orders.take("a", order(1, 7))).toBe(true);
    expect(orders.take("b", order(2, 1))).toBe(true);
    expect(orders.take("a", order(1, 8))).toBe(false);
    expect(orders.take("a", order(1, 9))).toBe(false);
    expect(lines.filter((line) => line.includes("refused"))).toHaveLength(1);
  });

  it("takes an order again, and none that is older under the same number", () => {
    const orders = new PlacementOrders({ file, logger: keptLogger().logger });
    expect(orders.take("a", order(3, 5))).toBe(true);
    expect(orders.take("a", order(3, 5))).toBe(true);
    expect(orders.take("a", order(3, 4))).toBe(false);
    expect(orders.take("a", order(3, 6))).toBe(true);
  });

  it("remembers the number beyond its own end, and starts anew from a damaged file", () => {
    const { logger } = keptLogger();
    new PlacementOrders({ file, logger }).take("a", order(4, 2));
    expect(new PlacementOrders({ file, logger }).take("b", order(3, 9))).toBe(false);
    writeFileSync(file, "{");
    expect(new PlacementOrders({ file, logger }).take("b", order(3, 9))).toBe(true);
  });
});
