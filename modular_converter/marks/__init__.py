"""Comments `# Copied from …`: do the copies that they mark still say what their sources say?"""
