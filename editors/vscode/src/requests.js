"use strict";

// What the extension asks the language server. The client is anything with `sendRequest(method, params)`.

const GENERATED = "modular-converter.generated";

/** The generated text of a class, or of all files for the name "": `{name, text}`. */
function generated(client, uri, name) {
  return client.sendRequest("workspace/executeCommand", { command: GENERATED, arguments: [uri, name] });
}

/** The places that a line leads to: to generated lines from a modular file, to its sources from a generated one. */
async function places(client, uri, position) {
  const isModular = /\/modular_\w+\.py$/.test(uri);
  const method = `textDocument/${isModular ? "implementation" : "declaration"}`;
  return (await client.sendRequest(method, { textDocument: { uri }, position })) || [];
}

module.exports = { generated, places };
