/** The colours of every page, light and dark. */
export const COLOURS = `
  :root { color-scheme: light dark; --ink: #1c2430; --soft: #5a6675; --page: #fbfbf9; --card: #ffffff; --line: #dde1e6; --accent: #0b6e6e; --bad: #b3261e; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e6e9ed; --soft: #9aa6b4; --page: #14181d; --card: #1c2229; --line: #303842; --accent: #5cc8c0; --bad: #f2827a; }
  }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
`;
