#!/usr/bin/env node
import { runBuilt } from "./run-built.mjs";

await runBuilt("backend/main.js");
