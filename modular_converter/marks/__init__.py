"""Comments `# Copied from …`: are the marked copies still equal to their sources?"""
