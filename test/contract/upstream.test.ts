import { UndiciUpstream } from "../../edge/node/upstream.undici.ts";
import { FetchUpstream } from "../../edge/web/upstream.fetch.ts";
import { upstreamContract } from "./upstream.contract.ts";

upstreamContract({ name: "undici", create: () => new UndiciUpstream() });
upstreamContract({ name: "fetch", create: () => new FetchUpstream() });
