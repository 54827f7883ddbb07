// One classic script and one style sheet under fixed names: a page that is opened from a file may
// not load modules, and a rebuild of the same sources must give the same files.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../gymmesh_view/static",
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    target: "es2022",
    rollupOptions: {
      input: "src/main.tsx",
      output: {
        format: "iife",
        entryFileNames: "app.js",
        assetFileNames: "app[extname]",
      },
    },
  },
});
