"""The language server: answers about modular files while they are being written. Only `server.py` imports pygls."""
