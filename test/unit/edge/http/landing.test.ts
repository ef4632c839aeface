import { expect, it } from "vitest";
import { landingPage } from "../../../../edge/http/pages/landing.ts";

it("names on the landing page every route that a key opens", async () => {
  const page = String(await landingPage({ baseUrl: "http://edge/v1", models: [] }));
  for (const route of ["models", "chat/completions", "completions", "embeddings", "saes", "key"]) {
    expect(page).toContain(`<code>/v1/${route}</code>`);
  }
});
