"use strict";

// The language server as a process, spoken to over stdio: enough of the protocol for the tests, with nothing installed.

const { spawn } = require("node:child_process");

class Server {
  constructor([command, ...args]) {
    this.process = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.waiting = new Map();
    this.number = 0;
    this.rest = Buffer.alloc(0);
    this.process.stdout.on("data", (data) => this.read(data));
  }

  read(data) {
    this.rest = Buffer.concat([this.rest, data]);
    for (;;) {
      const end = this.rest.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/Content-Length: (\d+)/.exec(this.rest.subarray(0, end))[1]);
      if (this.rest.length < end + 4 + length) return;
      const message = JSON.parse(this.rest.subarray(end + 4, end + 4 + length));
      this.rest = this.rest.subarray(end + 4 + length);
      const waiting = this.waiting.get(message.id);
      if (!waiting || message.method) continue;
      this.waiting.delete(message.id);
      if (message.error) waiting.reject(new Error(message.error.message));
      else waiting.resolve(message.result);
    }
  }

  send(message) {
    const text = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
    this.process.stdin.write(`Content-Length: ${text.length}\r\n\r\n`);
    this.process.stdin.write(text);
  }

  sendNotification(method, params) {
    this.send({ method, params });
  }

  sendRequest(method, params) {
    const id = ++this.number;
    this.send({ id, method, params });
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  async start() {
    await this.sendRequest("initialize", { processId: process.pid, rootUri: null, capabilities: {} });
    this.sendNotification("initialized", {});
  }

  open(uri, text) {
    this.sendNotification("textDocument/didOpen", { textDocument: { uri, languageId: "python", version: 1, text } });
  }

  async stop() {
    await this.sendRequest("shutdown", null);
    this.sendNotification("exit", null);
    return new Promise((resolve) => this.process.on("exit", resolve));
  }
}

module.exports = { Server };
