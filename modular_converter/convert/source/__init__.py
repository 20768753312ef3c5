"""Sources as they are read: a module as statements with their text, names of models, renaming."""
