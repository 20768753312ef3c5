"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const { generated, places } = require("./requests");

const SCHEME = "modular-generated";
let client;

/** Shows generated texts in read-only editors, which follow the modular file while it is typed. */
class Previews {
  constructor() {
    this.changed = new vscode.EventEmitter();
    this.onDidChange = this.changed.event;
    this.shown = new Map();
  }

  async show(uri, name) {
    const title = name || uri.split("/").pop().replace(/\.py$/, "");
    const preview = vscode.Uri.from({ scheme: SCHEME, path: `/${title} (generated).py`, query: JSON.stringify([uri, name]) });
    this.shown.set(preview.toString(), preview);
    this.changed.fire(preview);
    const document = await vscode.workspace.openTextDocument(preview);
    await vscode.languages.setTextDocumentLanguage(document, "python");
    await vscode.window.showTextDocument(document, { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true });
  }

  async provideTextDocumentContent(preview) {
    const [uri, name] = JSON.parse(preview.query);
    try {
      return (await generated(client, uri, name)).text;
    } catch (error) {
      return `# ${error.message}\n`;
    }
  }

  update(uri) {
    for (const preview of this.shown.values()) {
      if (JSON.parse(preview.query)[0] === uri) this.changed.fire(preview);
    }
  }
}

/** Opens the place that the line of the cursor leads to; several are offered as a list. */
async function follow() {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const { document, selection } = editor;
  const uri = client.code2ProtocolConverter.asUri(document.uri);
  const found = await places(client, uri, client.code2ProtocolConverter.asPosition(selection.active));
  if (!found.length) {
    vscode.window.setStatusBarMessage("modular-convert: no other line stands behind this one", 4000);
    return;
  }
  const locations = found.map((one) => client.protocol2CodeConverter.asLocation(one));
  await vscode.commands.executeCommand(
    "editor.action.goToLocations", document.uri, selection.active, locations, "gotoAndPeek", ""
  );
}

async function activate(context) {
  const [command, ...args] = vscode.workspace.getConfiguration("modular-converter").get("command");
  const documentSelector = [{ scheme: "file", language: "python" }];
  client = new LanguageClient("modular-converter", "modular-converter", { command, args }, { documentSelector });
  const previews = new Previews();
  context.subscriptions.push(
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, previews),
    vscode.workspace.onDidChangeTextDocument(({ document }) => previews.update(document.uri.toString())),
    vscode.commands.registerCommand("modular-converter.preview", (uri, name) => previews.show(uri, name)),
    vscode.commands.registerCommand("modular-converter.previewFile", () => {
      const editor = vscode.window.activeTextEditor;
      return editor && previews.show(editor.document.uri.toString(), "");
    }),
    vscode.commands.registerCommand("modular-converter.toGenerated", follow),
    vscode.commands.registerCommand("modular-converter.toSource", follow)
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `modular-convert cannot be started (${error.message}). Install it with its extra \`lsp\`, and name the command in ` +
        "the setting modular-converter.command."
    );
  }
}

function deactivate() {
  return client && client.stop();
}

module.exports = { activate, deactivate };
