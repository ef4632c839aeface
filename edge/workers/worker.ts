import { createAgentApp, createApp } from "../app.ts";
import { depsOf } from "./worker-deps.ts";
import type { WorkerEnv } from "./env.ts";

export { CoordinatorObject } from "./coordinator-object.ts";
export { FleetObject } from "./fleet-object.ts";
export { LedgerObject } from "./ledger-object.ts";
export { LimitsObject } from "./limits-object.ts";

/** Hosts report to the same origin, under a path that the public app does not have. */
const AGENT_PATH = "/agent/";

const worker: ExportedHandler<WorkerEnv> = {
  async fetch(request, env, context) {
    const deps = await depsOf(env, context);
    const isReport = new URL(request.url).pathname.startsWith(AGENT_PATH);
    const app = isReport ? createAgentApp(deps) : createApp(deps);
    return app.fetch(request);
  },
};

export default worker;
