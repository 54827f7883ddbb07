// Says that dist/cjs holds CommonJS, in a package whose modules are otherwise ECMAScript's.
import { writeFileSync } from "node:fs";

writeFileSync(new URL("../dist/cjs/package.json", import.meta.url), '{ "type": "commonjs" }\n');
