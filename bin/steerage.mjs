#!/usr/bin/env -S MALLOC_ARENA_MAX=1 node --max-semi-space-size=4
import { runBuilt } from "./run-built.mjs";

await runBuilt("edge/node/main.js");
