import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** Every text file also compressed, so that the server need not do it again for each reader. */
function compressed(): Plugin {
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 10 } };
  return {
    name: "compressed",
    apply: "build",
    generateBundle: {
      order: "post",
      handler(_, bundle) {
        for (const [name, file] of Object.entries(bundle)) {
          if (!/\.(js|css|svg)$/.test(name)) continue;
          const text = Buffer.from(file.type === "chunk" ? file.code : file.source);
          this.emitFile({ type: "asset", fileName: `${name}.br`, source: brotliCompressSync(text, quality) });
          this.emitFile({ type: "asset", fileName: `${name}.gz`, source: gzipSync(text, { level: 9 }) });
        }
      },
    },
  };
}

export default defineConfig({
  plugins: [react(), compressed()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the Content-Security-Policy takes no data: addresses
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 300,
    emptyOutDir: true,
  },
  server: { proxy: { "/api": "http://127.0.0.1:8080", "/sign-in": "http://127.0.0.1:8080" } },
});
