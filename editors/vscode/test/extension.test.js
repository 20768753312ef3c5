"use strict";

// The extension with a stand-in for the editor, and the real language server behind it: `MODULAR_CONVERT` is its command.

const assert = require("node:assert");
const fs = require("node:fs");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { pathToFileURL } = require("node:url");
const { Server } = require("./server");

const COMMAND = JSON.parse(process.env.MODULAR_CONVERT || '["modular-convert", "lsp"]');
const MANIFEST = require("../package.json");
const OLD = "from torch import nn\n\n\nclass OldMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n";
const NEW = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    def twice(self, x):\n        return x * 2\n";

function tree() {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "modular-"));
  for (const [name, text] of [["old/modeling_old.py", OLD], ["new/modular_new.py", NEW]]) {
    const file = path.join(root, "models", name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
  }
  return pathToFileURL(path.join(fs.realpathSync(root), "models/new/modular_new.py")).toString();
}

/** A stand-in for the module `vscode` which records what the extension registers and shows. */
function editor(uri) {
  const seen = { commands: {}, shown: [], gone: [], errors: [] };
  const parsed = (text, query = "") => ({ toString: () => text, query });
  const vscode = {
    EventEmitter: class { event = () => ({}); fire() {} },
    Uri: { from: ({ scheme, path: name, query }) => parsed(`${scheme}:${name}`, query) },
    ViewColumn: { Beside: -2 },
    commands: {
      registerCommand: (name, run) => (seen.commands[name] = run),
      executeCommand: (name, ...given) => seen.gone.push([name, ...given]),
    },
    languages: { setTextDocumentLanguage: async () => {} },
    workspace: {
      getConfiguration: () => ({ get: () => COMMAND }),
      registerTextDocumentContentProvider: (scheme, provider) => (seen.provider = provider),
      onDidChangeTextDocument: () => ({}),
      openTextDocument: async (preview) => ({ uri: preview, text: await seen.provider.provideTextDocumentContent(preview) }),
    },
    window: {
      activeTextEditor: { document: { uri: parsed(uri) }, selection: { active: { line: 5, character: 8 } } },
      showTextDocument: async (document) => seen.shown.push(document.text),
      showErrorMessage: (text) => seen.errors.push(text),
      setStatusBarMessage: () => {},
    },
  };
  return { seen, vscode };
}

/** The part of `vscode-languageclient` that the extension uses, over the real server. */
function languageClient(servers) {
  return class {
    constructor(id, name, { command, args }) {
      this.server = new Server([command, ...args]);
      this.code2ProtocolConverter = { asUri: (one) => one.toString(), asPosition: (one) => one };
      this.protocol2CodeConverter = { asLocation: (one) => one };
      servers.push(this.server);
    }
    start() { return this.server.start(); }
    stop() { return this.server.stop(); }
    sendRequest(...given) { return this.server.sendRequest(...given); }
  };
}

test("the extension shows what the server says", async () => {
  const uri = tree();
  const { seen, vscode } = editor(uri);
  const servers = [];
  const load = Module._load;
  Module._load = (name, ...rest) => {
    if (name === "vscode") return vscode;
    if (name === "vscode-languageclient/node") return { LanguageClient: languageClient(servers) };
    return load(name, ...rest);
  };
  const extension = require("../src/extension");
  const context = { subscriptions: [] };
  await extension.activate(context);
  assert.deepStrictEqual(seen.errors, []);
  servers[0].open(uri, NEW.replace("x * 2", "x * 22"));

  await seen.commands["modular-converter.preview"](uri, "NewMLP");
  assert.match(seen.shown[0], /class NewMLP\(nn\.Module\):\n {4}def forward[^]*x \* 22/);
  await seen.commands["modular-converter.previewFile"]();
  assert.match(seen.shown[1], /automatically generated[^]*class NewMLP/);
  await seen.commands["modular-converter.preview"](uri, "Nothing");
  assert.match(seen.shown[2], /^# .*Nothing/);

  await seen.commands["modular-converter.toGenerated"]();
  const [[name, , , [place]]] = seen.gone;
  assert.strictEqual(name, "editor.action.goToLocations");
  assert.match(place.uri, /modeling_new\.py$/);

  assert.strictEqual(await extension.deactivate(), 0);
  for (const { command } of MANIFEST.contributes.commands) assert.ok(command in seen.commands, command);
  assert.ok(context.subscriptions.length >= 6);
});

test("the default command is the one that the documentation names", () => {
  const { default: command } = MANIFEST.contributes.configuration.properties["modular-converter.command"];
  assert.deepStrictEqual(command, ["modular-convert", "lsp"]);
});
