#!/usr/bin/env node
import { runBuilt } from "./run-built.mjs";

await runBuilt("edge/node/main.js");
