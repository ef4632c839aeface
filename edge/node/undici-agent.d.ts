// The package's entry also loads its fetch, WebSocket, cache and mocks: 9 MiB that would lie idle.
declare module "undici/lib/dispatcher/agent.js" {
  export { Agent as default } from "undici";
}
