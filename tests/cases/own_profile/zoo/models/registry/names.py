SETTINGS_OF = {"cat": "CatSettings", "lion": "LIONSettings"}
