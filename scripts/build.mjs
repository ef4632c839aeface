import { main, say, setUp } from "./setup.mjs";

if (process.argv.includes("--help")) {
  say(
    "usage: npm run build\n\nInstalls what is missing, compiles TypeScript and the native core. Nothing is done twice.",
  );
} else {
  await main(setUp);
}
