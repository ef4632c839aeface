#!/usr/bin/env -S node --max-semi-space-size=4 --no-parallel-scavenge --heap-growing-percent=50
import { runBuilt } from "./run-built.mjs";

await runBuilt("edge/node/main.js");
