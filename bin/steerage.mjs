#!/usr/bin/env -S node --max-semi-space-size=4
import { runBuilt } from "./run-built.mjs";

await runBuilt("edge/node/main.js");
